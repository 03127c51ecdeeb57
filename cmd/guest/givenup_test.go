package main

import (
	"encoding/json"
	"net/netip"
	"testing"

	"godwit/vm/guest"
)

// TestTriesFromWhatWasGivenUp: what the guest's kernel sends from an address that the guest has given up is told by no
// counter: the last tries of connections that nobody has any more, which left by a NIC that was made ready for a
// network where the guest was not yet, and seemed to be lost.
func TestTriesFromWhatWasGivenUp(t *testing.T) {
	makeNICs(t)
	n := newNode(&family{})
	call := func(handler guest.Handler, params any) {
		t.Helper()
		raw, err := json.Marshal(params)
		must(t, err)
		_, err = handler(t.Context(), "", raw)
		must(t, err)
	}
	addr := from.Addr()
	sent := func(when, nic string, more int, told uint64) {
		t.Helper()
		datagrams(t, nic, secondMAC, remote, 443, more) // they are from addr
		raw, err := n.counters(t.Context(), struct{}{})
		must(t, err)
		var sum uint64
		for _, m := range raw.(guest.Counters).Meter {
			if m.Out && m.Src == addr {
				sum += m.Packets
			}
		}
		if sum != told {
			t.Errorf("%s: %d packets are told of, want %d", when, sum, told)
		}
	}
	old := guest.Configure{MAC: firstMAC, Addrs: []netip.Prefix{from}, GatewayV4: netip.MustParseAddr("10.9.3.1"), Table: guest.FirstTable, Main: true}
	next := configureNext()
	next.Main = true
	call(n.configure, old)
	sent("at first", "nic0", 10, 10)
	call(n.configure, next)
	sent("moved", "nic0", 3, 13)
	call(with(n.retire), guest.Retire{Addrs: []netip.Addr{addr}, MAC: firstMAC, NewMAC: secondMAC})
	sent("given up", "nic1", 4, 13)
	call(with(n.retire), guest.Retire{Addrs: []netip.Addr{addr}, MAC: firstMAC, NewMAC: secondMAC})
	old.Main = false
	call(n.makeReady, old)
	sent("made ready", "nic0", 5, 13)
	call(n.configure, old)
	sent("back again", "nic0", 6, 19)
	call(with(n.dropAddress), addrsParam{[]netip.Addr{addr, netip.MustParseAddr("10.9.9.9")}})
	sent("dropped", "nic1", 7, 19)
}

// from is the address from which datagrams sends.
var from = netip.MustParsePrefix("10.9.3.4/24")
