package mptcp

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestEventsThatCannotBeRead: they leave no socket: who asks for them again, as a guest's helper does each second,
// would have one more each time.
func TestEventsThatCannotBeRead(t *testing.T) {
	loopback(t)
	before := sockets(t)
	events, err := Events(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var own string // inode
	var port uint32
	for inode, at := range sockets(t) {
		if _, was := before[inode]; !was {
			own, port = inode, at
		}
	}
	if port == 0 {
		t.Fatal("its socket is not seen")
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_GENERIC)
	if err != nil {
		t.Fatal(err)
	}
	err = unix.Sendto(fd, []byte{1}, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Pid: port}) // no message is as short
	unix.Close(fd)
	if err != nil {
		t.Fatal(err)
	}
	for range events {
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, left := sockets(t)[own]; !left {
			break
		} else if time.Now().After(end) {
			t.Fatal("its socket is left")
		}
	}
}

// sockets are those of generic netlink here: port by inode.
func sockets(t *testing.T) map[string]uint32 {
	t.Helper()
	table, err := os.ReadFile("/proc/thread-self/net/netlink")
	if err != nil {
		t.Fatal(err)
	}
	ports := map[string]uint32{}
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line) // sk Eth Pid Groups Rmem Wmem Dump Locks Drops Inode
		if len(f) < 10 || f[1] != fmt.Sprint(unix.NETLINK_GENERIC) {
			continue
		}
		var port uint32
		if _, err := fmt.Sscan(f[2], &port); err != nil {
			t.Fatal(err)
		}
		ports[f[9]] = port
	}
	return ports
}
