package main

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"godwit/internal/need"
	"godwit/netstate/dump"
	"godwit/netstate/mptcp"
	"godwit/vm/guest"
)

// What tests of a guest need of one: its NICs in the test's own network namespace, and what the kernel says of them.

const (
	firstMAC  = "52:54:00:00:09:0a"
	secondMAC = "52:54:00:00:09:0b"
)

var (
	oldV4   = netip.MustParsePrefix("10.9.1.10/24")
	oldV6   = netip.MustParsePrefix("fd00:9:1::10/64")
	nextV4  = netip.MustParsePrefix("10.9.2.10/24")
	nextV6  = netip.MustParsePrefix("fd00:9:2::10/64")
	oldGW4  = netip.MustParseAddr("10.9.1.1")
	oldGW6  = netip.MustParseAddr("fd00:9:1::1")
	nextGW4 = netip.MustParseAddr("10.9.2.1")
	nextGW6 = netip.MustParseAddr("fd00:9:2::1")
	remote  = netip.MustParseAddr("10.9.3.3") // on lo: the peer of connections
)

// makeNICs makes the guest's two NICs, ends of veth pairs, and takes them away again.
func makeNICs(t *testing.T) {
	t.Helper()
	need.Root(t)
	run := func(command string) {
		if out, err := exec.Command("/bin/sh", "-c", command).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v %s", command, err, out)
		}
	}
	run("ip link set lo up && ip addr replace " + remote.String() + "/32 dev lo")
	for i, mac := range []string{firstMAC, secondMAC} {
		run(fmt.Sprintf("ip link add nic%d address %s type veth peer name far%d && ip link set far%d up", i, mac, i, i))
	}
	if err := mptcp.SetLimits(8, 8); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		run("ip link del nic0; ip link del nic1; ip mptcp endpoint flush; for f in -4 -6; do ip $f rule show | grep ^10000: | while read r; do ip $f rule del priority 10000; done; done")
	})
}

func configureOld() guest.Configure {
	return guest.Configure{MAC: firstMAC, Addrs: []netip.Prefix{oldV4, oldV6}, GatewayV4: oldGW4, GatewayV6: oldGW6,
		Table: guest.FirstTable, Main: true, TxQueueLen: 10000, MTU: 1400}
}

func configureNext() guest.Configure {
	return guest.Configure{MAC: secondMAC, Addrs: []netip.Prefix{nextV4, nextV6}, GatewayV4: nextGW4, GatewayV6: nextGW6,
		Table: guest.FirstTable + 1, Endpoint: 3, MTU: 1 << 17} // more than its NIC can
}

// lookup is what the kernel would do with a packet from source to far away.
func lookup(t *testing.T, source, to string, more ...string) string {
	t.Helper()
	out, err := exec.Command("ip", append([]string{"route", "get", to, "from", source}, more...)...).CombinedOutput()
	if err != nil {
		return "none: " + strings.TrimSpace(string(out))
	}
	return strings.TrimSpace(string(out))
}

func nic(t *testing.T, device string) netlink.Link {
	t.Helper()
	link, err := netlink.LinkByName(device)
	must(t, err)
	return link
}

func isUp(t *testing.T, device string) bool {
	t.Helper()
	return nic(t, device).Attrs().Flags&net.FlagUp != 0
}

func mtuOf(t *testing.T, device string) int {
	t.Helper()
	return nic(t, device).Attrs().MTU
}

// addrsOn are a NIC's addresses but its link-local ones, in order.
func addrsOn(t *testing.T, device string) []string {
	t.Helper()
	found, err := dump.Addrs(nic(t, device), netlink.FAMILY_ALL)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, a := range found {
		if !a.IP.IsLinkLocalUnicast() {
			all = append(all, a.IPNet.String())
		}
	}
	slices.Sort(all)
	return all
}

// connect makes a connection from remote to the old address, over which data has gone
// both ways.
func connect(t *testing.T, multipath bool) [2]net.Conn {
	t.Helper()
	var listening net.ListenConfig
	listening.SetMultipathTCP(true)
	listener, err := listening.Listen(t.Context(), "tcp4", ":0")
	must(t, err)
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: remote.AsSlice()}}
	dialer.SetMultipathTCP(multipath)
	port := listener.Addr().(*net.TCPAddr).Port
	near, err := dialer.DialContext(t.Context(), "tcp", fmt.Sprintf("%s:%d", oldV4.Addr(), port))
	must(t, err)
	far, err := listener.Accept()
	must(t, err)
	t.Cleanup(func() {
		for _, c := range []net.Conn{near, far} {
			c.(*net.TCPConn).SetLinger(0)
			c.Close()
		}
		listener.Close()
	})
	pair := [2]net.Conn{near, far}
	alive(t, pair)
	return pair
}

// awaitFinWait2 returns when the peer's kernel has acknowledged that this side is closed, which it may leave for some 40 ms.
func awaitFinWait2(t *testing.T, conn *net.TCPConn) {
	t.Helper()
	const finWait2 = 5 // include/net/tcp_states.h
	raw, err := conn.SyscallConn()
	must(t, err)
	for state := uint8(0); state != finWait2; time.Sleep(time.Millisecond) {
		must(t, t.Context().Err())
		must(t, raw.Control(func(fd uintptr) {
			var info *unix.TCPInfo
			if info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
				state = info.State
			}
		}))
		must(t, err)
	}
}

// alive sends a byte both ways.
func alive(t *testing.T, pair [2]net.Conn) {
	t.Helper()
	for i := range pair {
		pair[i].SetDeadline(time.Now().Add(5 * time.Second))
		pair[1-i].SetDeadline(time.Now().Add(5 * time.Second))
		_, err := pair[i].Write([]byte{1})
		must(t, err)
		_, err = io.ReadFull(pair[1-i], make([]byte, 1))
		must(t, err)
	}
}

func want(t *testing.T, what string, got, expected any) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(expected) {
		t.Errorf("%s: got %v, want %v", what, got, expected)
	}
}

func contains(t *testing.T, what, got string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(got, w) {
			t.Errorf("%s: %q lacks %q", what, got, w)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
