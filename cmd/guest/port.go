package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// A port is a virtio-serial port. Reading waits, without using the CPU, also while
// no host is connected; then the kernel says "end of file" and "hung up", which is
// why Go's own files cannot be used here. Writing waits for room as long as a host
// is connected, and throws the bytes away when none is.
type port struct {
	fd int
	in *waiter
	// out has an epoll of its own: both directions wait at the same time.
	out *waiter
}

// openPort finds the port by the name that the host gave it.
func openPort(name string) (*port, error) {
	names, err := filepath.Glob("/sys/class/virtio-ports/*/name")
	if err != nil {
		return nil, err
	}
	for _, path := range names {
		content, err := os.ReadFile(path)
		if err != nil || strings.TrimSpace(string(content)) != name {
			continue
		}
		device := filepath.Join("/dev", filepath.Base(filepath.Dir(path)))
		return newPort(device)
	}
	return nil, fmt.Errorf("open port %s: %w", name, os.ErrNotExist)
}

func newPort(device string) (*port, error) {
	fd, err := unix.Open(device, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", device, err)
	}
	p := &port{fd: fd}
	if p.in, err = newWaiter(fd, unix.EPOLLIN); err == nil {
		p.out, err = newWaiter(fd, unix.EPOLLOUT)
	}
	if err != nil {
		p.Close()
		return nil, fmt.Errorf("open %s: %w", device, err)
	}
	return p, nil
}

// Read returns at least one byte; it never ends.
func (p *port) Read(b []byte) (int, error) {
	for {
		n, err := unix.Read(p.fd, b)
		switch {
		case n > 0:
			return n, nil
		case errors.Is(err, unix.ENODEV):
			return 0, io.EOF
		case err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR):
			return 0, err
		}
		// Nothing there, or (n = 0) no host: the port wakes us for both.
		if _, err := p.in.wait(); err != nil {
			return 0, err
		}
	}
}

// Write takes all of b.
func (p *port) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		n, err := unix.Write(p.fd, rest)
		switch {
		case n > 0:
			rest = rest[n:]
			continue
		case err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR):
			return len(b) - len(rest), err
		}
		events, err := p.out.wait()
		if err != nil {
			return len(b) - len(rest), err
		}
		if events&unix.EPOLLHUP != 0 {
			return len(b), nil // nobody reads: the next host begins with a sync
		}
	}
	return len(b), nil
}

func (p *port) Close() {
	for _, w := range []*waiter{p.in, p.out} {
		if w != nil {
			w.close()
		}
	}
	_ = unix.Close(p.fd)
}

// A waiter sleeps until the kernel says that something about a descriptor changed.
// Edges, not levels: a port without a host is "hung up" for as long as it lasts.
//
// It sleeps in Go's own poller, by its epoll, of which that hears: a thread that slept in the kernel
// would have the runtime's monitor find out that it does, which costs an emulated guest that has just arrived several ms.
type waiter struct {
	file *os.File
	conn syscall.RawConn
}

func newWaiter(fd int, events uint32) (*waiter, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	err = errors.Join(unix.SetNonblock(epoll, true), // by which os knows that the poller is to have it
		unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events | unix.EPOLLET, Fd: int32(fd)}))
	if err != nil {
		_ = unix.Close(epoll)
		return nil, err
	}
	w := &waiter{file: os.NewFile(uintptr(epoll), "epoll")}
	if w.conn, err = w.file.SyscallConn(); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func (w *waiter) wait() (uint32, error) {
	var events [1]unix.EpollEvent
	var failed error
	err := w.conn.Read(func(epoll uintptr) bool {
		n, err := unix.EpollWait(int(epoll), events[:], 0)
		if errors.Is(err, unix.EINTR) {
			err = nil
		}
		failed = err
		return n > 0 || err != nil
	})
	return events[0].Events, errors.Join(err, failed)
}

func (w *waiter) close() { _ = w.file.Close() }
