package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// firstNice is the nice value of the first process: what the host asks of a guest
	// in a handover, its clients wait for.
	firstNice = -5
	// packetsNice is that of the threads that take a busy guest's packets (ksoftirqd, 0
	// by itself): the same. Under emulation, with less they would wait behind the first
	// process for longer than the guest was stopped, and network downtime would be a run
	// queue's; with more, a client's upload would keep the host waiting for seconds.
	packetsNice = firstNice
)

// first puts this process before the guest's workloads. Threads that begin later
// inherit it, and so do children, until family.start or notFirst says otherwise.
func first() error { return renice(firstNice) }

// packetsFirst puts packets before workloads too; for guests of the lab only.
func packetsFirst() error {
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	for _, path := range names {
		name, _ := os.ReadFile(path) // one that has ended has no name
		thread, numErr := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if numErr == nil && strings.HasPrefix(string(name), "ksoftirqd/") {
			err = errors.Join(err, unix.Setpriority(unix.PRIO_PROCESS, thread, packetsNice))
		}
	}
	return err
}

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
