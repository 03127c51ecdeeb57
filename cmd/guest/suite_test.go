package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"godwit/internal/need"
	"godwit/netstate/mptcp"
	"godwit/vm/guest"
	"godwit/vm/guest/qga"

	"github.com/vishvananda/netlink"
)

// The suite of guest.Channel: what an agent asks of a guest, answered by our own
// program and by the QEMU guest agent. Each runs on this machine, in the test's own
// network namespace, whose two NICs are the guest's.

// each runs a test by both channels, with fresh NICs.
func each(t *testing.T, test func(t *testing.T, c guest.Channel)) {
	t.Run("helper", func(t *testing.T) {
		makeNICs(t)
		test(t, ownHelper(t))
	})
	t.Run("qga", func(t *testing.T) {
		need.Program(t, "qemu-ga")
		need.Program(t, "ss")
		makeNICs(t)
		test(t, guestAgent(t))
	})
}

// ownHelper is the helper's methods behind the wire format.
func ownHelper(t *testing.T) guest.Channel {
	near, far := net.Pipe()
	n := newNode(&family{})
	n.offer(n.all())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		n.server.Serve(t.Context(), far, far) //nolint:errcheck // ends with the pipe
	}()
	c, err := guest.NewClient(t.Context(), near)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		far.Close()
		<-ended
	})
	return c
}

// guestAgent is a real qemu-ga on a unix socket, started by a command, where one is given.
func guestAgent(t *testing.T, by ...string) guest.Channel {
	dir := t.TempDir()
	socket := filepath.Join(dir, "qga.sock")
	words := append(by, "qemu-ga", "-m", "unix-listen", "-p", socket, "-t", dir, "-f", filepath.Join(dir, "pid"))
	command := exec.Command(words[0], words[1:]...)
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started, end := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread() // it ends with the thread that started it, which tests of namespaces would use up
		defer runtime.UnlockOSThread()
		started <- command.Start()
		<-end
	}()
	if err := <-started; err != nil {
		close(end)
		t.Fatal(err)
	}
	t.Cleanup(func() {
		command.Process.Kill()
		command.Wait()
		close(end)
	})
	for range 200 {
		if c, err := qga.Dial(t.Context(), socket); err == nil {
			t.Cleanup(func() { c.Close() })
			return c
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatal("qemu-ga does not listen")
	return nil
}

// TestChannelMovesAddresses configures the old address, then the next one beside it,
// and retires the old one, each call twice: the second makes the same state.
func TestChannelMovesAddresses(t *testing.T) {
	each(t, func(t *testing.T, c guest.Channel) {
		ctx := t.Context()
		for range 2 {
			made, err := c.Configure(ctx, configureOld())
			must(t, err)
			want(t, "device", made.Device, "nic0")
		}
		want(t, "addresses", addrsOn(t, "nic0"), []string{oldV4.String(), oldV6.String()})
		want(t, "MTU", mtuOf(t, "nic0"), 1400)
		contains(t, "unbound route", lookup(t, "0.0.0.0", "192.0.2.1"), "via 10.9.1.1 dev nic0")
		for range 2 {
			made, err := c.Configure(ctx, configureNext())
			must(t, err)
			want(t, "endpoints", made.EndpointIDs, []uint8{3, 4})
		}
		contains(t, "route from the next address", lookup(t, "10.9.2.10", "192.0.2.1"), "via 10.9.2.1 dev nic1 table 26369")
		contains(t, "route from the old address", lookup(t, "10.9.1.10", "192.0.2.1"), "via 10.9.1.1 dev nic0 table 26368")
		contains(t, "IPv6 route from the next address", lookup(t, "fd00:9:2::10", "2001:db8::1"), "via fd00:9:2::1 dev nic1 table 26369")
		contains(t, "unbound route", lookup(t, "0.0.0.0", "192.0.2.1"), "dev nic0")
		endpoints, err := mptcp.Endpoints()
		must(t, err)
		want(t, "endpoints", len(endpoints), 2)
		want(t, "MTU of a NIC that cannot", mtuOf(t, "nic1"), 1500)

		out, err := exec.Command("ip", "-6", "route", "add", "default", "via", "fe80::1", "dev", "nic0", "proto", "ra", "metric", "2048", "expires", "1790").CombinedOutput()
		if err != nil { // a router's, beside the address that somebody gave
			t.Fatalf("%v: %s", err, out)
		}
		for range 2 {
			must(t, c.MakeMain(ctx, secondMAC))
		}
		contains(t, "unbound route", lookup(t, "0.0.0.0", "192.0.2.1"), "via 10.9.2.1 dev nic1")
		out, err = exec.Command("ip", "-6", "route", "show", "default", "dev", "nic0").CombinedOutput()
		must(t, err)
		want(t, "default routes of IPv6 by the old NIC", string(out), "")
		for range 2 {
			must(t, c.Retire(ctx, guest.Retire{Addrs: []netip.Addr{oldV4.Addr(), oldV6.Addr()}, MAC: firstMAC, NewMAC: secondMAC, EndpointIDs: []uint8{1}}))
		}
		want(t, "addresses left", addrsOn(t, "nic0"), []string(nil))
		want(t, "addresses", addrsOn(t, "nic1"), []string{nextV4.String(), nextV6.String()})
		rules, err := exec.Command("ip", "rule", "show", "from", "10.9.1.10").Output()
		must(t, err)
		want(t, "rules of the old address", strings.TrimSpace(string(rules)), "")
		want(t, "the old NIC is up in the end", isUp(t, "nic0"), false)
	})
}

// TestChannelInOneSubnet: both NICs are in the same subnets, with the same gateways, as those of
// a guest are that moves to another host of its site. Their tables are those that older agents chose.
func TestChannelInOneSubnet(t *testing.T) {
	each(t, func(t *testing.T, c guest.Channel) {
		ctx := t.Context()
		old, next := configureOld(), configureNext()
		old.Table, next.Table = 100, 101
		_, err := c.Configure(ctx, old)
		must(t, err)
		next.Addrs = []netip.Prefix{netip.MustParsePrefix("10.9.1.11/24"), netip.MustParsePrefix("fd00:9:1::11/64")}
		next.GatewayV4, next.GatewayV6 = oldGW4, oldGW6
		if _, ok := c.(*qga.Client); !ok {
			must(t, c.Ready(ctx, next))
		}
		for range 2 {
			_, err = c.Configure(ctx, next)
			must(t, err)
		}
		contains(t, "route from the next address", lookup(t, "10.9.1.11", "192.0.2.1"), "via 10.9.1.1 dev nic1 table 101")
		contains(t, "IPv6 route from the next address", lookup(t, "fd00:9:1::11", "2001:db8::1"), "via fd00:9:1::1 dev nic1 table 101")
		contains(t, "IPv6 route to the router", lookup(t, "fd00:9:1::11", "fd00:9:1::1"), "dev nic1 table 101")
		contains(t, "IPv6 route from the old address", lookup(t, "fd00:9:1::10", "2001:db8::1"), "via fd00:9:1::1 dev nic0 table 100")
		for range 2 {
			must(t, c.MakeMain(ctx, secondMAC))
		}
		contains(t, "unbound IPv6 route", lookup(t, "::", "2001:db8::1"), "via fd00:9:1::1 dev nic1")
		must(t, c.Retire(ctx, guest.Retire{Addrs: []netip.Addr{oldV4.Addr(), oldV6.Addr()}, MAC: firstMAC, NewMAC: secondMAC, Keep: true}))
		contains(t, "IPv6 route from the kept address", lookup(t, "fd00:9:1::10", "2001:db8::1"), "via fd00:9:1::1 dev nic1")
		must(t, c.DropAddress(ctx, oldV4.Addr(), oldV6.Addr()))
		old.Main = false
		_, err = c.Configure(ctx, old)
		must(t, err)
		contains(t, "IPv6 route on the way back", lookup(t, "fd00:9:1::10", "2001:db8::1"), "via fd00:9:1::1 dev nic0 table 100")
	})
}

// TestChannelKeepsAddresses moves the old addresses to the new NIC, for those who need
// them, and drops them later.
func TestChannelKeepsAddresses(t *testing.T) {
	each(t, func(t *testing.T, c guest.Channel) {
		ctx := t.Context()
		_, err := c.Configure(ctx, configureOld())
		must(t, err)
		_, err = c.Configure(ctx, configureNext())
		must(t, err)
		old := []netip.Addr{oldV4.Addr(), oldV6.Addr()}
		retire := guest.Retire{Addrs: old, MAC: firstMAC, NewMAC: secondMAC, Keep: true, Stay: true}
		must(t, c.Retire(ctx, retire))
		want(t, "both NICs have it", addrsOn(t, "nic0"), []string{oldV4.String(), oldV6.String()})
		retire.Stay = false
		for range 2 {
			must(t, c.Retire(ctx, retire))
		}
		want(t, "kept", addrsOn(t, "nic1"), []string{"10.9.1.10/32", nextV4.String(), "fd00:9:1::10/128", nextV6.String()})
		contains(t, "route from the kept address", lookup(t, "10.9.1.10", "192.0.2.1"), "via 10.9.2.1 dev nic1 table 27369")
		contains(t, "IPv6 route from the kept address", lookup(t, "fd00:9:1::10", "2001:db8::1"), "via fd00:9:2::1 dev nic1 table 27369")
		if _, ok := c.(*qga.Client); !ok { // whose scripts know nothing of the old NIC's gateways
			contains(t, "route of a server that names the old NIC", lookup(t, "10.9.1.10", "192.0.2.1", "oif", "nic0"), "via 10.9.1.1 dev nic0")
			must(t, c.Ready(ctx, guest.Configure{MAC: firstMAC})) // a move that comes to nothing
			want(t, "the old NIC lingers", isUp(t, "nic0"), true)
			ignores, err := os.ReadFile("/proc/sys/net/ipv4/conf/nic0/arp_ignore")
			must(t, err)
			want(t, "whom the old NIC answers", string(ignores), "8\n")
		}
		second := netip.MustParseAddr("10.9.1.11") // of an earlier move, kept as well
		must(t, c.Retire(ctx, guest.Retire{Addrs: []netip.Addr{second}, MAC: firstMAC, NewMAC: secondMAC, Keep: true}))
		for range 2 {
			must(t, c.DropAddress(ctx, append(old, second)...))
		}
		want(t, "after the drop", addrsOn(t, "nic1"), []string{nextV4.String(), nextV6.String()})
		want(t, "the old NIC is up in the end", isUp(t, "nic0"), false)
	})
}

// TestChannelRetiresWhatItKept: old addresses that were kept, and that nobody needs any more as the handover is tried
// again, are on no NIC in the end.
func TestChannelRetiresWhatItKept(t *testing.T) {
	for _, stay := range []bool{true, false} { // where the first try ended
		each(t, func(t *testing.T, c guest.Channel) {
			ctx := t.Context()
			_, err := c.Configure(ctx, configureOld())
			must(t, err)
			_, err = c.Configure(ctx, configureNext())
			must(t, err)
			retire := guest.Retire{Addrs: []netip.Addr{oldV4.Addr(), oldV6.Addr()}, MAC: firstMAC, NewMAC: secondMAC, Keep: true, Stay: stay}
			must(t, c.Retire(ctx, retire))
			retire.Keep, retire.Stay = false, false
			for range 2 {
				must(t, c.Retire(ctx, retire))
			}
			want(t, "on the old NIC", addrsOn(t, "nic0"), []string(nil))
			want(t, "on the new NIC", addrsOn(t, "nic1"), []string{nextV4.String(), nextV6.String()})
			want(t, "the old NIC is up in the end", isUp(t, "nic0"), false)
			contains(t, "route from the next address", lookup(t, "10.9.2.10", "192.0.2.1"), "via 10.9.2.1 dev nic1 table 26369")
		})
	}
}

// TestServerLivesOnWherePutByOthers: a NIC that somebody else configured, as those of a guest that was adopted, goes on
// sending for servers that name it.
func TestServerLivesOnWherePutByOthers(t *testing.T) {
	makeNICs(t)
	c := ownHelper(t)
	const byHand = "ip addr add 10.9.1.10/24 dev nic0; ip link set nic0 up; ip route add default via 10.9.1.1 dev nic0"
	if out, err := exec.Command("/bin/sh", "-ec", byHand).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	ctx := t.Context()
	must(t, c.Ready(ctx, configureNext()))
	_, err := c.Configure(ctx, configureNext())
	must(t, err)
	must(t, c.MakeMain(ctx, secondMAC))
	retire := guest.Retire{Addrs: []netip.Addr{oldV4.Addr()}, MAC: firstMAC, NewMAC: secondMAC, Keep: true, Stay: true, GatewayV4: oldGW4}
	must(t, c.Retire(ctx, retire))
	retire.Stay = false
	must(t, c.Retire(ctx, retire))
	contains(t, "route of a server that names the old NIC", lookup(t, "10.9.1.10", "192.0.2.1", "oif", "nic0"), "via 10.9.1.1 dev nic0")
	contains(t, "route from the kept address", lookup(t, "10.9.1.10", "192.0.2.1"), "via 10.9.2.1 dev nic1")
	must(t, c.DropAddress(ctx, oldV4.Addr()))
	want(t, "the old NIC is up in the end", isUp(t, "nic0"), false)
}

// TestChannelFollows has an MPTCP connection follow to the next address, and a plain
// one stay.
func TestChannelFollows(t *testing.T) {
	each(t, func(t *testing.T, c guest.Channel) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := c.Configure(ctx, configureOld())
		must(t, err)
		follows, stays := connect(t, true), connect(t, false)
		users, err := c.Users(ctx, oldV4.Addr())
		must(t, err)
		want(t, "MPTCP and TCP connections", [2]int{users.MPTCP, users.TCP}, [2]int{1, 1})

		p := guest.AwaitJoin{Addrs: []netip.Addr{nextV4.Addr()}, Old: []netip.Addr{oldV4.Addr()}, LimitMS: 300}
		joins, err := c.AwaitJoin(ctx, p)
		must(t, err)
		want(t, "before the announcement: total, joined, unable", [3]int{joins.Total, joins.Joined, len(joins.Unable)}, [3]int{1, 0, 1})
		six := guest.AwaitJoin{Addrs: []netip.Addr{nextV6.Addr()}, Old: p.Old, LimitMS: 10000}
		joins, err = c.AwaitJoin(ctx, six)
		must(t, err)
		want(t, "with an address of another family: unable", len(joins.Unable), 1)
		want(t, "and not waited for", joins.WaitedMS < 5000, true)
		contains(t, "why", joins.Unable[0].Why, "known by IPv4 alone")
		err = c.Retire(ctx, guest.Retire{Addrs: p.Old, MAC: firstMAC, NewMAC: secondMAC})
		want(t, "retiring its only address is refused", errors.Is(err, guest.ErrBound), true)
		alive(t, follows)
		_, err = c.Configure(ctx, configureNext())
		must(t, err)
		p.LimitMS = 10000
		joins, err = c.AwaitJoin(ctx, p)
		must(t, err)
		want(t, "after it: total, joined, unable", [3]int{joins.Total, joins.Joined, len(joins.Unable)}, [3]int{1, 1, 0})
		must(t, c.Retire(ctx, guest.Retire{Addrs: p.Old, MAC: firstMAC, NewMAC: secondMAC, Keep: true}))
		alive(t, follows)
		alive(t, stays)
		users, err = c.Users(ctx, oldV4.Addr())
		must(t, err)
		want(t, "who still uses the old address", [2]int{users.MPTCP, users.TCP}, [2]int{0, 1})
	})
}

// TestChannelCountsHalfClosed: a plain connection that a process of the guest has closed on its side, and still hears
// of, needs its address.
func TestChannelCountsHalfClosed(t *testing.T) {
	each(t, func(t *testing.T, c guest.Channel) {
		_, err := c.Configure(t.Context(), configureOld())
		must(t, err)
		pair := connect(t, false)
		must(t, pair[1].(*net.TCPConn).CloseWrite())
		_, err = pair[0].Read(make([]byte, 1))
		want(t, "what its peer reads", err, io.EOF)
		awaitFinWait2(t, pair[1].(*net.TCPConn))
		users, err := c.Users(t.Context(), oldV4.Addr())
		must(t, err)
		want(t, "connections", users.TCP, 1)
		must(t, pair[1].Close())
		users, err = c.Users(t.Context(), oldV4.Addr()) // the kernel has it still, until its peer has closed, too
		must(t, err)
		want(t, "connections of nobody", users.TCP, 0)
	})
}

// TestChannelDescribes compares what both say of the same machine.
func TestChannelDescribes(t *testing.T) {
	each(t, func(t *testing.T, c guest.Channel) {
		ctx := t.Context()
		_, err := c.Configure(ctx, configureOld())
		must(t, err)
		var i guest.Info
		must(t, c.Call(ctx, "info", nil, &i))
		at := slices.IndexFunc(i.NICs, func(n guest.NIC) bool { return n.MAC == firstMAC })
		if at < 0 {
			t.Fatalf("no NIC %s in %+v", firstMAC, i.NICs)
		}
		var addrs []string
		for _, a := range i.NICs[at].Addrs {
			addrs = append(addrs, a.String())
		}
		slices.Sort(addrs)
		want(t, "addresses", addrs, []string{oldV4.String(), oldV6.String()})
		want(t, "MPTCP, subflows, accepted", []any{i.MPTCP, i.Subflows, i.AddrAccepted}, []any{true, 8, 8})
		var e guest.Executed
		must(t, c.Call(ctx, "exec", guest.Exec{Command: "echo out; echo err >&2; exit 3"}, &e))
		want(t, "exec", e, guest.Executed{Exit: 3, Stdout: "out\n", Stderr: "err\n"})
		must(t, c.Call(ctx, "exec", guest.Exec{Command: "sleep 30", TimeoutMS: 200}, &e))
		want(t, "timed out", e.TimedOut, true)
		err = c.Ticks(ctx, 5*time.Millisecond)
		if _, ok := c.(*qga.Client); ok != errors.Is(err, guest.ErrUnsupported) {
			t.Errorf("ticks: %v", err)
		}
		must(t, c.Ticks(ctx, 0))
	})
}

// TestChannelTellsWhatLiesAbove: a bridge over a NIC has its MAC, and is none.
func TestChannelTellsWhatLiesAbove(t *testing.T) {
	each(t, func(t *testing.T, c guest.Channel) {
		under := nic(t, "nic0")
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "over", HardwareAddr: under.Attrs().HardwareAddr}}
		must(t, netlink.LinkAdd(bridge))
		t.Cleanup(func() { must(t, netlink.LinkDel(bridge)) })
		must(t, netlink.LinkSetMaster(under, bridge))
		var i guest.Info
		must(t, c.Call(t.Context(), "info", nil, &i))
		above, part := map[string]bool{}, map[string]bool{}
		for _, n := range i.NICs {
			if n.MAC == firstMAC {
				above[n.Name], part[n.Name] = n.Above, n.Part
			}
		}
		want(t, "what lies above", above, map[string]bool{under.Attrs().Name: false, "over": true})
		want(t, "what is a part of that", part, map[string]bool{under.Attrs().Name: true, "over": false})
	})
}
