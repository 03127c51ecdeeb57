package mptcp

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// LimitSend bounds what process pid may have written to its connections to remote, TCP and
// MPTCP, that the other end has not acknowledged: to about so many bytes together (SO_SNDBUF). The
// sockets are the process's own, of which it gives us a descriptor (pidfd_getfd(2), Linux 5.6, as
// root). It says how many there are. What they hold already is sent; until then the process waits.
func LimitSend(pid int, remote netip.AddrPort, bytes int) (n int, err error) {
	descriptors, err := connected(pid, remote)
	if err != nil || len(descriptors) == 0 {
		return 0, err
	}
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return 0, fmt.Errorf("open process %d: %w", pid, err)
	}
	defer unix.Close(process)
	for _, number := range descriptors {
		fd, gerr := unix.PidfdGetfd(process, number, 0)
		if gerr != nil {
			err = errors.Join(err, fmt.Errorf("descriptor %d of process %d: %w", number, pid, gerr))
			continue
		}
		if serr := sendBuffer(fd, bytes/len(descriptors)); serr != nil {
			err = errors.Join(err, fmt.Errorf("send buffer of process %d: %w", pid, serr))
		} else {
			n++
		}
		unix.Close(fd) //nolint:errcheck // ours
	}
	return n, err
}

// connected are the descriptors of a process's connections to remote.
func connected(pid int, remote netip.AddrPort) (numbers []int, err error) {
	sockets, parents, err := dumpBoth()
	if err != nil {
		return nil, fmt.Errorf("list tcp sockets: %w", err)
	}
	wanted := map[string]bool{}
	for _, all := range [][]socket{sockets, parents} {
		for _, s := range all {
			if s.remote == remote && s.inode != 0 {
				wanted[fmt.Sprintf("socket:[%d]", s.inode)] = true
			}
		}
	}
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		number, nerr := strconv.Atoi(e.Name())
		what, lerr := os.Readlink(filepath.Join(dir, e.Name()))
		if nerr == nil && lerr == nil && wanted[what] {
			delete(wanted, what) // another descriptor of the same socket is not another socket
			numbers = append(numbers, number)
		}
	}
	return numbers, nil
}

// sendBuffer sets SO_SNDBUF, which the kernel doubles, for what it needs to keep track of the
// bytes; past net.core.wmem_max where we may: a socket that was set grows no more by itself.
func sendBuffer(fd, bytes int) error {
	err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, bytes)
	if err == nil {
		return nil
	}
	most, merr := numbers("/proc/sys/net/core/wmem_max", 1)
	if merr != nil || int64(bytes) > most[0] {
		return fmt.Errorf("more than net.core.wmem_max: %w", errors.Join(err, merr))
	}
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, bytes)
}
