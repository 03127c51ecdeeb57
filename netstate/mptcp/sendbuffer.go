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
// MPTCP, that the other end has not acknowledged: about so many bytes (SO_SNDBUF). The sockets
// are the process's own, of which it gives us a descriptor (pidfd_getfd(2), Linux 5.6, as root). It
// says how many there are. What they hold already is sent; until then the process waits.
func LimitSend(pid int, remote netip.AddrPort, bytes int) (n int, err error) {
	sockets, parents, err := dumpBoth()
	if err != nil {
		return 0, fmt.Errorf("list tcp sockets: %w", err)
	}
	wanted := map[string]bool{}
	for _, s := range append(sockets, parents...) {
		if s.remote == remote && s.inode != 0 {
			wanted[fmt.Sprintf("socket:[%d]", s.inode)] = true
		}
	}
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return 0, fmt.Errorf("open process %d: %w", pid, err)
	}
	defer unix.Close(process)
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		number, nerr := strconv.Atoi(e.Name())
		if what, lerr := os.Readlink(filepath.Join(dir, e.Name())); nerr != nil || lerr != nil || !wanted[what] {
			continue
		}
		fd, gerr := unix.PidfdGetfd(process, number, 0)
		if gerr != nil {
			err = errors.Join(err, fmt.Errorf("descriptor %d of process %d: %w", number, pid, gerr))
			continue
		}
		// The kernel doubles it, for what it needs to keep track of the bytes.
		if serr := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, bytes); serr != nil {
			err = errors.Join(err, fmt.Errorf("send buffer of process %d: %w", pid, serr))
		} else {
			n++
		}
		unix.Close(fd) //nolint:errcheck // ours
	}
	return n, err
}
