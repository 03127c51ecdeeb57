package topo

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"godwit/internal/need"
	"godwit/netstate/mptcp"
	"godwit/netstate/netns"

	"github.com/vishvananda/netlink"
)

// TestClientOfManyUplinksMovesAfterItsServer: a client whose old and new addresses are more than the kernel has
// endpoints for moves when its server has left the address to which their connection was made.
func TestClientOfManyUplinksMovesAfterItsServer(t *testing.T) {
	need.Lab(t) // it judges how soon a connection goes on
	for _, uplinks := range []int{3, 4} {
		t.Run(fmt.Sprint(uplinks), func(t *testing.T) {
			spec := threeSites(testID(8))
			spec.Clients[0].Uplinks = uplinks
			movesAfterItsServer(t, built(t, spec), uplinks)
		})
	}
}

func movesAfterItsServer(t *testing.T, topo *Topo, uplinks int) {
	host := topo.Hosts()[1]
	next := standIn(t, topo, host)[0]
	first := next.Next()
	only := netip.PrefixFrom(first, first.BitLen())
	w := topo.nodes[hostNode(host.Name)].work()
	w.address(guestBridge, only)
	w.fromRule(only, 99)
	inHost := func(do func() error) {
		t.Helper()
		if err := netns.Do(host.Namespace, do); err != nil {
			t.Fatal(err)
		}
	}
	if w.err != nil {
		t.Fatal(w.err)
	}
	inHost(func() error { return mptcp.SetLimits(maxSubflows, maxSubflows) })
	conn, peer := connected(t, host.Namespace, topo.Client("phone").Namespace, first)
	talk(t, conn, peer)
	inHost(func() error { return mptcp.AddEndpoint(mptcp.Endpoint{ID: 5, Addr: next, Flags: mptcp.FlagSignal}) })
	for until := time.Now().Add(soon); ; time.Sleep(20 * time.Millisecond) {
		there := 0
		inHost(func() error {
			connections, err := mptcp.Connections()
			for _, c := range connections {
				for _, s := range c.Subflows {
					if s.Local.Addr() == next && s.State == mptcp.StateEstablished {
						there++
					}
				}
			}
			return err
		})
		if there == uplinks {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("%d subflows to the next address, want %d", there, uplinks)
		}
	}
	talk(t, conn, peer)
	inHost(func() error {
		if err := mptcp.DelEndpoint(0, first); err != nil {
			return err
		}
		link, err := netlink.LinkByName(guestBridge)
		if err != nil {
			return err
		}
		return netlink.AddrDel(link, &netlink.Addr{IPNet: &net.IPNet{IP: first.AsSlice(), Mask: net.CIDRMask(32, 32)}})
	})
	if err := topo.MoveClient(t.Context(), "phone", "paris", ms(100)); err != nil {
		t.Fatal(err)
	}
	talk(t, conn, peer)
	uses(t, topo.Client("phone"))
}

// uses looks whether each present address of a client is an endpoint, and no other.
func uses(t *testing.T, c ClientNet) {
	t.Helper()
	if err := netns.Do(c.Namespace, func() error {
		known, err := mptcp.Endpoints()
		var got []netip.Addr
		for _, e := range known {
			got = append(got, e.Addr)
		}
		want := append(slices.Clone(c.Addrs), c.AddrsV6...)
		slices.SortFunc(got, netip.Addr.Compare)
		slices.SortFunc(want, netip.Addr.Compare)
		if !slices.Equal(got, want) {
			t.Errorf("at %s its endpoints are %v, want %v", c.At, got, want)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}
