// Package sysmon has Go's monitor thread wake less often. It is for programs of guests; those that
// need each of their system calls to let others run at once are not to use it.
//
// The runtime looks after its other threads by one of its own (sysmon in runtime/proc.go), which sleeps for 20 µs at a
// time, fifty times, whenever the program has had nothing to do and has something again. In an emulated guest each of
// these takes 0.1 ms of its processor, and keeps what there is to do from being done for as long: it took a third to a
// half of the time for which a server that says something every 10 ms was awake.
package sysmon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// slack is by how much the kernel may let the thread sleep longer, until it wakes for something
// else: a tick, at 250 Hz. What waits for the thread
// waits as long, a goroutine behind a system call that blocks, or behind one that computes without end. By itself it sleeps for
// 20 µs to 10 ms.
const slack = "4000000" // ns

// Calm sets the timer slack (proc_pid_timerslack_ns(5)) of this program's monitor thread. It takes
// CAP_SYS_NICE, as the thread is not the caller's.
func Calm() error { return calm("/proc") }

func calm(proc string) error {
	// The kernel lists threads in the order in which they began; the runtime begins its monitor before all others.
	dir, err := os.Open(filepath.Join(proc, "self/task"))
	if err != nil {
		return fmt.Errorf("find the monitor thread: %w", err)
	}
	defer dir.Close()
	threads, err := dir.Readdirnames(2)
	if err == nil && len(threads) < 2 {
		err = errors.New("there is none yet")
	}
	if err != nil {
		return fmt.Errorf("find the monitor thread: %w", err)
	}
	return os.WriteFile(filepath.Join(proc, threads[1], "timerslack_ns"), []byte(slack), 0)
}
