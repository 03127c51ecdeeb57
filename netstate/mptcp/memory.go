package mptcp

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Memory is what data that nobody has read yet may take, in bytes: that of all TCP sockets
// of the machine (net.ipv4.tcp_mem), and of this namespace's MPTCP connections.
type Memory struct {
	Used  int64 // by all of TCP now
	Limit int64 // beyond which the kernel drops what comes; 0: not known, as in a container
	// Grown is what the receive buffers together may hold that grew beyond what each begins
	// with (net.ipv4.tcp_rmem): those of connections on which much came. Each counts twice, as
	// the kernel makes the subflow's as large as the connection's (mptcp_rcv_space_adjust), and
	// what has no room in the one waits in the other.
	Grown       int64
	Connections int // that have such a buffer
}

// ReadMemory asks the kernel.
func ReadMemory() (Memory, error) {
	var m Memory
	page := int64(os.Getpagesize())
	limits, err := numbers("/proc/sys/net/ipv4/tcp_mem", 3) // only where the machine's first namespace is seen
	switch {
	case err == nil:
		m.Limit = limits[2] * page
	case !errors.Is(err, os.ErrNotExist):
		return m, err
	}
	buffers, err := numbers("/proc/sys/net/ipv4/tcp_rmem", 3)
	if err != nil {
		return m, err
	}
	if m.Used, err = ofTCP("/proc/net/sockstat", "TCP", "mem"); err != nil {
		return m, err
	}
	m.Used *= page
	sockets, err := ask(func(family uint8) []byte {
		request := diagRequest(family, protoMPTCP, 1<<StateEstablished|1<<StateCloseWait|1<<StateFinWait1|1<<StateFinWait2)
		request[2] = 1 << (diagMemory - 1)
		return request
	})
	if err != nil {
		return m, fmt.Errorf("list receive buffers: %w", err)
	}
	for _, s := range sockets {
		if s.receive > buffers[1] {
			m.Grown += 2 * s.receive
			m.Connections++
		}
	}
	return m, nil
}

// numbers reads a file of at least n numbers.
func numbers(path string, n int) ([]int64, error) {
	text, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		return nil, err
	}
	var all []int64
	for _, word := range strings.Fields(string(text)) {
		value, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		all = append(all, value)
	}
	if len(all) < n {
		return nil, fmt.Errorf("read %s: %d numbers, want %d", path, len(all), n)
	}
	return all, nil
}

// ofTCP is a figure of TCP's sockets, by the line of the kernel's that begins so: mem, the memory of all of them in pages,
// or inuse, how many of a family this namespace has.
func ofTCP(path, line, name string) (int64, error) {
	text, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		return 0, err
	}
	for l := range strings.Lines(string(text)) {
		rest, ok := strings.CutPrefix(l, line+":")
		_, rest, found := strings.Cut(rest, " "+name+" ")
		if !ok || !found {
			continue
		}
		word, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
		return strconv.ParseInt(word, 10, 64)
	}
	return 0, fmt.Errorf("read %s: no %s of %s", path, name, line)
}

// fewSockets is up to how many sockets of TCP are listed to be counted: beyond that those that listen are few of them.
const fewSockets = 256

// receivers is how many of this namespace's TCP sockets may receive data, of both families: what a server of both
// accepts by IPv4 is of IPv6.
func receivers() (int64, error) {
	sockets, err := ofTCP("/proc/net/sockstat", "TCP", "inuse")
	if err != nil {
		return 0, err
	}
	more, err := ofTCP("/proc/net/sockstat6", "TCP6", "inuse")
	if err != nil && !errors.Is(err, os.ErrNotExist) { // a kernel without IPv6
		return 0, err
	}
	if sockets += more; sockets > fewSockets {
		return sockets, nil
	}
	listed, err := ask(func(family uint8) []byte {
		return diagRequest(family, unix.IPPROTO_TCP, 1<<StateEstablished|1<<StateFinWait1|1<<StateFinWait2)
	})
	return int64(len(listed)), err
}
