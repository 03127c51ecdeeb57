package lab

import (
	"net/netip"
	"testing"
)

// TestHoldings: an address that was one guest's, then another's, then the first's again.
func TestHoldings(t *testing.T) {
	a, b := netip.MustParseAddr("10.1.1.10"), netip.MustParseAddr("10.1.1.11")
	counts, all := map[netip.Addr]flowCount{}, map[netip.Addr]bool{a: true, b: true}
	var h holdings
	want := func(when string, web, db flowCount) {
		t.Helper()
		if got := h.passed("web", counts, all); got != web {
			t.Errorf("%s: web %+v, want %+v", when, got, web)
		}
		if got := h.passed("db", counts, all); got != db {
			t.Errorf("%s: db %+v, want %+v", when, got, db)
		}
	}
	take := func(guest string, addr netip.Addr, longAgo bool) { h.take(guest, addr, counts[addr], longAgo) }

	counts[a] = flowCount{3, 2} // what passed before anybody looked is the first's
	take("web", a, false)
	take("db", b, false)
	counts[a], counts[b] = flowCount{9000, 5000}, flowCount{1, 1}
	want("at first", flowCount{9000, 5000}, flowCount{1, 1})

	take("db", a, false)
	take("web", a, true) // an old report says so
	want("it is the other's", flowCount{9000, 5000}, flowCount{1, 1})
	counts[a] = flowCount{9100, 5200}
	take("db", a, false)
	want("traffic of the other", flowCount{9000, 5000}, flowCount{101, 201})

	take("web", a, false)
	counts[a] = flowCount{9110, 5203}
	want("back", flowCount{9010, 5003}, flowCount{101, 201})
	if got := h.passed("web", nil, map[netip.Addr]bool{b: true}); got != (flowCount{9000, 5000}) {
		t.Errorf("of what was counted before it had the address: %+v", got)
	}
	if got := h.known("db"); len(got) != 2 || !got[a] || !got[b] {
		t.Errorf("db has had %v", got)
	}
}

// TestGivenUp: what goes to an address that its guest has given up is nobody's, from the handover's end on; what comes
// from it may be late. It counts again from the switch after which the guest has it again, or another has.
func TestGivenUp(t *testing.T) {
	a, b := netip.MustParseAddr("10.1.1.10"), netip.MustParseAddr("10.2.1.10")
	counts, all := map[netip.Addr]flowCount{}, map[netip.Addr]bool{a: true, b: true}
	var h holdings
	has := func(guest string, addrs ...netip.Addr) {
		for _, addr := range addrs {
			h.take(guest, addr, counts[addr], false)
		}
		h.keeps(guest, addrs)
	}
	want := func(when, guest string, passed flowCount) {
		t.Helper()
		if got := h.passed(guest, counts, all); got != passed {
			t.Errorf("%s: %s %+v, want %+v", when, guest, got, passed)
		}
	}

	counts[a] = flowCount{100, 200}
	has("web", a)
	counts[a], counts[b] = flowCount{150, 240}, flowCount{7, 8}
	h.moving("web", counts)
	counts[a], counts[b] = flowCount{160, 250}, flowCount{10, 20}
	h.handed("web", counts)
	counts[a], counts[b] = flowCount{166, 253}, flowCount{11, 21} // six tries to join it, and three late packets from it
	has("web", b)
	want("moved", "web", flowCount{160 + 11, 253 + 21})
	has("web", b)
	counts[a] = flowCount{170, 253}
	want("moved, a second later", "web", flowCount{160 + 11, 253 + 21})

	h.moving("web", counts)
	counts[a] = flowCount{180, 260}
	h.handed("web", counts)
	counts[a] = flowCount{181, 261}
	has("web", a)
	want("back again", "web", flowCount{160 + 11 + 11, 261 + 21})
	counts[b] = flowCount{13, 21}
	has("web", a)
	want("given up without a handover", "web", flowCount{160 + 11 + 11, 261 + 21})
	has("db", b)
	counts[b] = flowCount{20, 30}
	want("another has it", "web", flowCount{160 + 11 + 11, 261 + 21})
	want("another has it", "db", flowCount{7, 9})
}

// TestGivenUpBetweenLooks: what came to an address between the last look at the edges and its being given up had passed them. It
// made the guest seem to have had more than had passed, and that hid as many that were lost elsewhere.
func TestGivenUpBetweenLooks(t *testing.T) {
	a, b := netip.MustParseAddr("10.1.1.10"), netip.MustParseAddr("10.2.1.10")
	counts, all := map[netip.Addr]flowCount{a: {toGuest: 50}, b: {toGuest: 7}}, map[netip.Addr]bool{a: true, b: true}
	var h holdings
	has := func(addrs ...netip.Addr) {
		for _, addr := range addrs {
			h.take("web", addr, counts[addr], false)
		}
		h.keeps("web", addrs)
	}
	want := func(when string, toGuest int64) {
		t.Helper()
		if got := h.passed("web", counts, all).toGuest; got != toGuest {
			t.Errorf("%s: %d, want %d", when, got, toGuest)
		}
	}
	has(a, b)
	h.got("web", map[netip.Addr]int64{a: 48, b: 7})
	want("at first", 57)
	counts[a] = flowCount{toGuest: 170} // a hundred, a lease that ends, and twenty tries
	has(b)
	h.got("web", map[netip.Addr]int64{a: 150, b: 7})
	want("given up", 157)
	h.got("web", map[netip.Addr]int64{a: 150, b: 7})
	h.got("web", map[netip.Addr]int64{b: 7}) // its counters have forgotten it
	want("a second later", 157)
	h.moving("web", counts)
	counts[a] = flowCount{toGuest: 175}
	has(a, b)
	h.got("web", map[netip.Addr]int64{a: 155, b: 7})
	want("back again", 162)
}
