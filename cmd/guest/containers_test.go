package main

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/internal/need"
	"godwit/netstate/netns"
	"godwit/vm/guest"
)

// container puts the far end of nic0 into a namespace of clients, and makes one of a container behind the guest's
// addresses: its port 8080 is 80 there, what it asks for itself is masqueraded. Port 81 is the guest's own 8081.
func container(t *testing.T) (clients, inside string) {
	t.Helper()
	need.Program(t, "nft")
	clients, inside = fmt.Sprintf("t-con-%d-c", os.Getpid()), fmt.Sprintf("t-con-%d-i", os.Getpid())
	for _, ns := range []string{clients, inside} {
		must(t, netns.Create(ns))
		t.Cleanup(func() { must(t, netns.Delete(ns)) })
	}
	const script = `
ip link set far0 netns CLIENTS
ip -n CLIENTS addr add 10.9.1.1/24 dev far0; ip -n CLIENTS addr add fd00:9:1::1/64 dev far0 nodad; ip -n CLIENTS link set far0 up
ip link add br-con type veth peer name c0 netns INSIDE
ip addr add 172.17.9.1/24 dev br-con; ip addr add fd00:17:9::1/64 dev br-con nodad; ip link set br-con up
ip -n INSIDE addr add 172.17.9.2/24 dev c0; ip -n INSIDE addr add fd00:17:9::2/64 dev c0 nodad; ip -n INSIDE link set c0 up
ip -n INSIDE route add default via 172.17.9.1; ip -n INSIDE -6 route add default via fd00:17:9::1
echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding
nft 'table inet containers {
	chain in {
		type nat hook prerouting priority -100
		iifname nic0 tcp dport 80 dnat ip to 172.17.9.2:8080
		iifname nic0 tcp dport 80 dnat ip6 to [fd00:17:9::2]:8080
		iifname nic0 tcp dport 81 redirect to :8081
	}
	chain out { type nat hook postrouting priority 100; oifname nic0 masquerade; }
}'`
	t.Cleanup(func() {
		const end = `nft delete table inet containers; ip link del br-con; echo 0 > /proc/sys/net/ipv4/ip_forward; echo 0 > /proc/sys/net/ipv6/conf/all/forwarding`
		if out, err := exec.Command("sh", "-c", end).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	out, err := exec.Command("sh", "-ec", strings.NewReplacer("CLIENTS", clients, "INSIDE", inside).Replace(script)).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return clients, inside
}

// TestChannelSeesContainers: connections that a guest forwards have no socket in it, and need its address all the same.
func TestChannelSeesContainers(t *testing.T) {
	each(t, func(t *testing.T, c guest.Channel) {
		ctx := t.Context()
		_, err := c.Configure(ctx, configureOld())
		must(t, err)
		clients, inside := container(t)
		old := []netip.Addr{oldV4.Addr(), oldV6.Addr()}
		users, err := c.Users(ctx, old...)
		must(t, err)
		want(t, "TCP at first", users.TCP, 0)

		talk := func(from, in, listen, to string) (pair [2]net.Conn) {
			t.Helper()
			var listener net.Listener
			open := func() (err error) {
				listener, err = net.Listen("tcp", listen) //nolint:noctx // it is there at once
				return err
			}
			if in == "" {
				must(t, open())
			} else {
				must(t, netns.Do(in, open))
			}
			defer listener.Close()
			must(t, netns.Do(from, func() (err error) {
				pair[0], err = net.DialTimeout("tcp", to, 10*time.Second) //nolint:noctx // with a limit of its own
				return err
			}))
			pair[1], err = listener.Accept()
			must(t, err)
			for _, conn := range pair {
				t.Cleanup(func() { conn.Close() })
			}
			alive(t, pair)
			return pair
		}
		published := talk(clients, inside, "172.17.9.2:8080", "10.9.1.10:80")
		published6 := talk(clients, inside, "[fd00:17:9::2]:8080", "[fd00:9:1::10]:80")
		own := talk(clients, "", "10.9.1.10:8081", "10.9.1.10:81")
		asked := talk(inside, clients, "10.9.1.1:9000", "10.9.1.1:9000")

		users, err = c.Users(ctx, old...)
		must(t, err)
		want(t, "TCP, and of it a container's own", [2]int{users.TCP, users.Outward}, [2]int{4, 1})
		list, err := c.Connections(ctx, old...)
		must(t, err)
		seen := map[string]bool{}
		for _, one := range list.List {
			seen[fmt.Sprintf("%s %v %v", one.Kind, one.Local, one.Remote)] = true
			want(t, fmt.Sprintf("outward: %v", one), one.Outward, one.Remote.Port() == 9000)
		}
		for what, as := range map[string]string{
			"published":     fmt.Sprintf("tcp 10.9.1.10:80 %v", published[0].LocalAddr()),
			"published, v6": fmt.Sprintf("tcp [fd00:9:1::10]:80 %v", published6[0].LocalAddr()),
			"the guest's":   fmt.Sprintf("tcp 10.9.1.10:8081 %v", own[0].LocalAddr()),
			"a container's": fmt.Sprintf("tcp %v 10.9.1.1:9000", asked[1].RemoteAddr()),
		} {
			if !seen[as] {
				t.Errorf("%s: no %q in %v", what, as, list.List)
			}
		}
		want(t, "connections", len(list.List), 4)

		for _, conn := range slices.Concat(published[:], published6[:]) {
			must(t, conn.Close())
		}
		for end := time.Now().Add(10 * time.Second); users.TCP != 2 && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			users, err = c.Users(ctx, old...)
			must(t, err)
		}
		want(t, "TCP, when two have ended", users.TCP, 2)

		list, err = c.Connections(ctx, old...)
		must(t, err)
		for _, conn := range asked {
			must(t, conn.Close())
		}
		of := func() (found guest.Connection, there bool) {
			list, err := c.Connections(ctx, old...)
			must(t, err)
			i := slices.IndexFunc(list.List, func(one guest.Connection) bool { return one.Outward })
			if i < 0 {
				return found, false
			}
			return list.List[i], true
		}
		one, there := of()
		for end := time.Now().Add(10 * time.Second); there && !one.Over && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			one, there = of()
		}
		_, helper := c.(*guest.Client)
		want(t, "it is told that a container's own was closed", one.Over, helper)
		users, err = c.Users(ctx, old...)
		must(t, err)
		want(t, "TCP, when a container's own has ended too", [2]int{users.TCP, users.Outward}, [2]int{1, 0})
	})
}
