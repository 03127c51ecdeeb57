// Package work carries out the workloads of package workload inside a guest.
package work

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"godwit/lab/image/workload"
	"godwit/vm/guest"

	"golang.org/x/sys/unix"
)

// A Set is the workloads of one guest. Its zero value is ready; DiskPath and Spin
// are set before the first Start.
type Set struct {
	// DiskPath is the device (or file) that disk workloads write to.
	DiskPath string
	// Spin makes the command that keeps a CPU busy: a process of its own, so
	// that the kernel and not Go's scheduler shares the CPU out.
	Spin func() *exec.Cmd
	// Begin starts a command whose end somebody waits for, and Complete waits for it.
	Begin    func(*exec.Cmd) error
	Complete func(*exec.Cmd) error

	mu      sync.Mutex
	running []string // lines that run, as often as they do
	areas   []*area
	used    int64 // bytes of the disk, by the areas that there are

	wrote atomic.Uint64
}

// Start begins each line that does not run yet (of equal ones, as many as do not), and returns when the areas have
// been filled and the disk written once. It stops at the first error; lines before
// it run. ctx only ends the filling.
func (s *Set) Start(ctx context.Context, lines []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	started := slices.Clone(s.running)
	for _, line := range lines {
		line = strings.TrimSpace(line)
		if i := slices.Index(started, line); i >= 0 {
			started = slices.Delete(started, i, i+1)
			continue
		}
		w, err := workload.Parse(line)
		if err != nil {
			return err
		}
		if err := s.start(ctx, w); err != nil {
			return fmt.Errorf("run %q: %w", line, err)
		}
		s.running = append(s.running, line)
	}
	return nil
}

func (s *Set) start(ctx context.Context, w workload.Workload) error {
	switch w.Kind {
	case workload.Dirty:
		store, err := newMemory(w.Size)
		if err != nil {
			return err
		}
		return s.fill(ctx, store, w, w.Hot)
	case workload.Disk:
		store, err := newDisk(s.DiskPath, s.used, max(w.Write, w.Area))
		if err != nil {
			return err
		}
		s.used += int64(store.pages()) * workload.PageSize
		return s.fill(ctx, store, w, 1)
	case workload.CPU:
		return s.begin(s.Spin())
	case workload.Exec:
		command := exec.Command("/bin/sh", "-c", w.Command)
		command.Stdout, command.Stderr = os.Stdout, os.Stderr
		return s.begin(command)
	case workload.Setup:
		return s.setUp(exec.Command("/bin/sh", "-c", w.Command))
	}
	return nil // http is always on
}

// setUp runs a command to its end; what it said last is in the error.
func (s *Set) setUp(command *exec.Cmd) error {
	var said bytes.Buffer
	command.Stdout, command.Stderr = &said, &said
	command.WaitDelay = time.Second // a child that keeps the output open is not waited for
	complete := s.Complete
	if complete == nil {
		complete = (*exec.Cmd).Run
	}
	if err := complete(command); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		lines := strings.Split(strings.TrimSpace(said.String()), "\n")
		return fmt.Errorf("%w: %s", err, lines[len(lines)-1])
	}
	return nil
}

func (s *Set) begin(command *exec.Cmd) error {
	if s.Begin != nil {
		return s.Begin(command)
	}
	if err := command.Start(); err != nil {
		return err
	}
	go func() { _ = command.Wait() }()
	return nil
}

func (s *Set) fill(ctx context.Context, store store, w workload.Workload, hot float64) error {
	a := newArea(uint32(len(s.areas)+1), store, w, &s.wrote)
	if err := a.fill(ctx); err != nil {
		return errors.Join(err, store.close())
	}
	s.areas = append(s.areas, a)
	if w.Rate > 0 {
		go func() {
			// The thread is this goroutine's and ends with it. Writing memory is work,
			// whatever the priority of the process.
			runtime.LockOSThread()
			_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), 0)
			a.rewrite(context.Background(), w.Rate, hot)
		}()
	}
	return nil
}

// Wrote is how many pages all areas have written so far. It waits for nobody.
func (s *Set) Wrote() uint64 { return s.wrote.Load() }

// Verify checks every page of every area.
func (s *Set) Verify() guest.Verified {
	s.mu.Lock()
	areas := slices.Clone(s.areas)
	s.mu.Unlock()
	v := guest.Verified{Areas: len(areas)}
	for _, a := range areas {
		a.verify(&v)
	}
	return v
}
