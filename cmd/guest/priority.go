package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// firstNice is the nice value of the first process: what the host asks of a guest
// in a handover, its clients wait for. A busy guest's packets are a thread's work as
// well (ksoftirqd, at 0), so much less than this would keep the clients waiting.
const firstNice = -5

// first puts this process before the guest's workloads. Threads that begin later
// inherit it, and so do children, until family.start or notFirst says otherwise.
func first() error { return renice(firstNice) }

// notFirst puts this process back among the others.
func notFirst() { _ = renice(0) }

// renice sets every thread of this process; a nice value is a thread's in Linux.
func renice(nice int) error {
	threads, err := filepath.Glob("/proc/self/task/*")
	if err != nil {
		return err
	}
	for _, path := range threads {
		thread, err := strconv.Atoi(filepath.Base(path))
		if err != nil {
			continue
		}
		if err := unix.Setpriority(unix.PRIO_PROCESS, thread, nice); err != nil && !os.IsNotExist(err) && err != unix.ESRCH {
			return fmt.Errorf("set priority: %w", err)
		}
	}
	return nil
}
