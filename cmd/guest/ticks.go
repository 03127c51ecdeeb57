package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"godwit/vm/guest"

	"golang.org/x/sys/unix"
)

// ticks keep the process that counts (see beat) and tell it how fast. The count is
// in memory that both share, so it goes on in the next process.
type ticks struct {
	mu    sync.Mutex
	page  *counted
	file  *os.File // of page
	rate  time.Duration
	rates io.WriteCloser // to the process; nil while there is none
}

// counted is what the two processes share.
type counted struct {
	n uint64
	// quiet says that a long line is being written: a tick in its middle would spoil it.
	quiet uint32
}

func newTicks() (*ticks, error) {
	fd, err := unix.MemfdCreate("ticks", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("share the ticks: %w", err)
	}
	file := os.NewFile(uintptr(fd), "ticks") //nolint:gosec // a descriptor
	page, err := mapCounted(file)
	if err != nil {
		file.Close()
		return nil, err
	}
	return &ticks{page: page, file: file}, nil
}

func mapCounted(file *os.File) (*counted, error) {
	size := os.Getpagesize()
	if err := file.Truncate(int64(size)); err != nil {
		return nil, fmt.Errorf("share the ticks: %w", err)
	}
	mem, err := unix.Mmap(int(file.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED) //nolint:gosec // a descriptor
	if err != nil {
		return nil, fmt.Errorf("share the ticks: %w", err)
	}
	return (*counted)(unsafe.Pointer(&mem[0])), nil //nolint:gosec // page aligned
}

// on begins a process that ticks into the port with that descriptor, in place of the
// one before.
func (t *ticks) on(port int, children *family) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rates != nil {
		t.rates.Close() // the process before ends
		t.rates = nil
	}
	fd, err := unix.FcntlInt(uintptr(port), unix.F_DUPFD_CLOEXEC, 0) //nolint:gosec // a descriptor
	if err != nil {
		return fmt.Errorf("tick: %w", err)
	}
	out := os.NewFile(uintptr(fd), "port") //nolint:gosec // a descriptor
	defer out.Close()
	command := exec.Command("/proc/self/exe", beatArgument)
	command.ExtraFiles = []*os.File{out, t.file}
	command.Stderr = os.Stderr
	rates, err := command.StdinPipe()
	if err != nil {
		return fmt.Errorf("tick: %w", err)
	}
	if err := children.begin(command); err != nil {
		return fmt.Errorf("tick: %w", err)
	}
	t.rates = rates
	return t.tell()
}

// set makes it tick at that interval from now on; 0 is never.
func (t *ticks) set(every time.Duration) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if every == t.rate {
		return nil
	}
	t.rate = every
	return t.tell()
}

func (t *ticks) tell() error {
	if t.rates == nil {
		return nil
	}
	_, err := t.rates.Write(binary.NativeEndian.AppendUint64(nil, uint64(t.rate))) //nolint:gosec // not negative
	return err
}

// beatArgument makes this program the one that counts.
const beatArgument = "beat"

// Descriptors that beat is begun with.
const (
	beatPort = 3
	beatPage = 4
)

// beat counts in guest memory and writes each tick to the port, at the interval that
// standard input says, until that ends. It runs before all others, in a process of
// its own: what is asked is whether the guest executes, not how long its run queue
// is. A tick that finds no room is not written, but counted.
func beat() error {
	page, err := mapCounted(os.NewFile(beatPage, "ticks"))
	if err != nil {
		return err
	}
	_ = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}, 0)
	var every, next int64
	rates := []unix.PollFd{{Fd: 0, Events: unix.POLLIN}}
	for {
		var wait *unix.Timespec
		if every > 0 {
			left := unix.NsecToTimespec(max(next-monotonic(), 0))
			wait = &left
		}
		n, err := unix.Ppoll(rates, wait, nil)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return fmt.Errorf("wait for a tick: %w", err)
		case n > 0:
			var rate [8]byte
			if _, err := io.ReadFull(os.Stdin, rate[:]); err != nil {
				return nil //nolint:nilerr // the first process has another
			}
			every = int64(binary.NativeEndian.Uint64(rate[:])) //nolint:gosec // as it was written
			next = monotonic() + every
			continue
		}
		page.tick()
		next = max(next+every, monotonic())
	}
}

// tick counts one, and tells it unless that would disturb.
func (c *counted) tick() {
	n := atomic.AddUint64(&c.n, 1)
	if atomic.LoadUint32(&c.quiet) == 0 {
		line := guest.EncodeTick(n, monotonic())
		_, _ = unix.Write(beatPort, line) // one write is one whole line, or none
	}
}

// monotonic is the guest's CLOCK_MONOTONIC in nanoseconds.
func monotonic() int64 {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) != nil {
		return 0
	}
	return now.Nano()
}
