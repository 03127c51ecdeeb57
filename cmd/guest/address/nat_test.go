package address

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/internal/need"
	"godwit/netstate/mptcp"
	"godwit/netstate/netns"
	"godwit/vm/guest"
)

// behindNAT makes a router with a client behind it, and three NICs of ours before it:
// nic1 as it is, nic2 behind a 1:1 NAT that shows 10.2.1.10 as 203.0.113.10 only, and fd00:2:1::10 as 2001:db8::10.
func behindNAT(t *testing.T) (client string) {
	t.Helper()
	need.Root(t)
	need.Program(t, "ip")
	need.Program(t, "nft")
	id := fmt.Sprintf("t-nat-%d-", os.Getpid())
	client, router := id+"c", id+"r"
	for _, ns := range []string{client, router} {
		if err := netns.Create(ns); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = netns.Delete(ns) })
	}
	script := `
ip link add r0 netns ROUTER type veth peer name c0 netns CLIENT
ip -n CLIENT addr add 198.18.0.2/24 dev c0; ip -n CLIENT addr add fd00:198::2/64 dev c0 nodad; ip -n CLIENT link set c0 up
ip -n ROUTER addr add 198.18.0.1/24 dev r0; ip -n ROUTER addr add fd00:198::1/64 dev r0 nodad; ip -n ROUTER link set r0 up
ip -n CLIENT route add default via 198.18.0.1; ip -n CLIENT route add default via fd00:198::1
for i in 1 2 3; do
	ip link add nic$i address 52:54:00:00:aa:0$i type veth peer name r$i netns ROUTER
	ip -n ROUTER addr add 10.$i.1.1/24 dev r$i; ip -n ROUTER addr add fd00:$i:1::1/64 dev r$i nodad; ip -n ROUTER link set r$i up
done
ip link set lo up
ip netns exec ROUTER sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding'
ip netns exec ROUTER nft 'table ip6 n {
	chain raw { type filter hook prerouting priority -300; iifname r0 ip6 daddr fd00:2:1::/64 drop; }
	chain in { type nat hook prerouting priority -100; ip6 daddr 2001:db8::10 dnat to fd00:2:1::10; }
	chain out { type nat hook postrouting priority 100; ip6 saddr fd00:2:1::10 snat to 2001:db8::10; }
}'
ip netns exec ROUTER nft 'table ip n {
	chain raw { type filter hook prerouting priority -300; iifname r0 ip daddr 10.2.1.0/24 drop; }
	chain in { type nat hook prerouting priority -100; ip daddr 203.0.113.10 dnat to 10.2.1.10; }
	chain out { type nat hook postrouting priority 100; ip saddr 10.2.1.10 snat to 203.0.113.10; }
}'`
	t.Cleanup(func() { _ = exec.Command("sh", "-c", "for i in 1 2 3; do ip link del nic$i; done").Run() })
	out, err := exec.Command("sh", "-ec", strings.NewReplacer("CLIENT", client, "ROUTER", router).Replace(script)).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := netns.Do(client, func() error { return mptcp.SetLimits(8, 8) }); err != nil {
		t.Fatal(err)
	}
	if err := mptcp.SetLimits(8, 8); err != nil {
		t.Fatal(err)
	}
	return client
}

// forgetEndpoints deletes all, for the next test.
func forgetEndpoints(t *testing.T) {
	t.Helper()
	endpoints, err := mptcp.Endpoints()
	if err != nil {
		t.Error(err)
	}
	for _, e := range endpoints {
		if err := mptcp.DelEndpoint(e.ID, e.Addr); err != nil {
			t.Error(err)
		}
	}
}

// TestAnnouncedBehindNAT: a client comes to the address that stands for ours, never
// to one that it cannot reach; and when we move on, the connection leaves it.
func TestAnnouncedBehindNAT(t *testing.T) {
	for name, c := range map[string]struct{ router, addr, public string }{
		"IPv4": {"10.%d.1.1", "10.%d.1.10/24", "203.0.113.10"},
		"IPv6": {"fd00:%d:1::1", "fd00:%d:1::10/64", "2001:db8::10"},
	} {
		t.Run(name, func(t *testing.T) { announcedBehindNAT(t, c.router, c.addr, netip.MustParseAddr(c.public)) })
	}
}

// announcedBehindNAT is TestAnnouncedBehindNAT by one family, with addresses that have a NIC's number.
func announcedBehindNAT(t *testing.T, router, addr string, public netip.Addr) {
	client := behindNAT(t)
	t.Cleanup(func() { forgetEndpoints(t) })
	var b Book
	nic := func(i int) guest.Configure {
		c := guest.Configure{MAC: fmt.Sprintf("52:54:00:00:aa:0%d", i), Table: 100 + i, Addrs: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf(addr, i))}}
		if gateway := netip.MustParseAddr(fmt.Sprintf(router, i)); gateway.Is4() {
			c.GatewayV4 = gateway
		} else {
			c.GatewayV6 = gateway
		}
		return c
	}
	at := func(i int) string { return own(nic(i)).String() }
	configure := func(c guest.Configure) {
		t.Helper()
		if _, err := b.Configure(c); err != nil {
			t.Fatal(err)
		}
	}
	one := nic(1)
	one.Main = true
	configure(one)
	near, far := talkTo(t, client, "tcp", own(nic(1)), 7000)
	hear := func() {
		t.Helper()
		if _, err := far.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		near.SetReadDeadline(time.Now().Add(20 * time.Second)) //nolint:errcheck // it has one
		if _, err := io.ReadFull(near, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	two := nic(2)
	two.Endpoint = 3
	configure(two)
	if joins(t, at(2), time.Second) {
		t.Fatal("the client came to an address that it cannot reach: this test shows nothing")
	}
	two.Endpoint, two.Announce = 5, []netip.Addr{public}
	configure(two)
	if !joins(t, at(2), 20*time.Second) {
		t.Fatal("nobody came to the announced address")
	}
	var again Book // of a program that was started again, for a move that comes to nothing
	for _, c := range []guest.Configure{nic(3), {MAC: nic(3).MAC}} {
		if err := again.Ready(c); err != nil {
			t.Fatal(err)
		}
	}
	if endpoints, err := mptcp.Endpoints(); err != nil || !slices.ContainsFunc(endpoints, func(e mptcp.Endpoint) bool { return e.Addr == two.Announce[0] }) {
		t.Fatalf("endpoints %v, %v: the announced address was withdrawn", endpoints, err)
	}
	retire := func(from, to int, ids ...uint8) {
		t.Helper()
		old := nic(from)
		if err := b.Retire(guest.Retire{Addrs: []netip.Addr{old.Addrs[0].Addr()}, MAC: old.MAC, NewMAC: nic(to).MAC, EndpointIDs: ids}); err != nil {
			t.Fatal(err)
		}
		hear()
	}
	retire(1, 2)
	three := nic(3)
	three.Endpoint = 7
	configure(three)
	if !joins(t, at(3), 20*time.Second) {
		t.Fatal("nobody followed from behind the NAT")
	}
	retire(2, 3, 5)
	if joins(t, at(2), 0) {
		t.Error("a subflow is left on the address that went")
	}
}

// talkTo makes an MPTCP connection from the client to an address of nic1, on which data went both ways. Its listener is
// on that network, "tcp": by both families.
func talkTo(t *testing.T, client, network string, addr netip.Addr, port int) (near, far net.Conn) {
	t.Helper()
	var listening net.ListenConfig
	listening.SetMultipathTCP(true)
	listener, err := listening.Listen(context.Background(), network, fmt.Sprintf(":%d", port))
	if err != nil {
		t.Fatal(err)
	}
	var dialer net.Dialer
	dialer.SetMultipathTCP(true)
	dialer.Timeout = 20 * time.Second
	err = netns.Do(client, func() (err error) {
		near, err = dialer.Dial("tcp", netip.AddrPortFrom(addr, uint16(port)).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if far, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close(); listener.Close() })
	for _, pair := range [][2]net.Conn{{near, far}, {far, near}} {
		if _, err := pair[0].Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(pair[1], make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	return near, far
}

// joins says whether a connection gets a working subflow on addr within limit.
func joins(t *testing.T, addr string, limit time.Duration) bool {
	t.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		connections, err := mptcp.Connections()
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range connections {
			if c.On([]netip.Addr{netip.MustParseAddr(addr)}, mptcp.StateEstablished) {
				return true
			}
		}
		if !time.Now().Before(end) {
			return false
		}
	}
}
