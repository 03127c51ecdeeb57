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
		if got := total(h.passed("web", counts, all)); got != web {
			t.Errorf("%s: web %+v, want %+v", when, got, web)
		}
		if got := total(h.passed("db", counts, all)); got != db {
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
	if got := total(h.passed("web", nil, map[netip.Addr]bool{b: true})); got != (flowCount{9000, 5000}) {
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
		if got := total(h.passed(guest, counts, all)); got != passed {
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

// TestGivenUpBetweenLooks: what came to an address between the last look at the edges and its being given up had passed
// them. It made the guest seem to have had more than had passed, and that hid as many that were lost elsewhere.
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
		if got := total(h.passed("web", counts, all)).toGuest; got != toGuest {
			t.Errorf("%s: %d, want %d", when, got, toGuest)
		}
	}
	has(a, b)
	h.got("web", map[netip.Addr]flowCount{a: {toGuest: 48}, b: {toGuest: 7}}, false)
	want("at first", 57)
	counts[a] = flowCount{toGuest: 170} // a hundred, a lease that ends, and twenty tries
	has(b)
	h.got("web", map[netip.Addr]flowCount{a: {toGuest: 150}, b: {toGuest: 7}}, false)
	want("given up", 157)
	h.got("web", map[netip.Addr]flowCount{a: {toGuest: 150}, b: {toGuest: 7}}, false)
	h.got("web", map[netip.Addr]flowCount{b: {toGuest: 7}}, false) // its counters have forgotten it
	want("a second later", 157)
	h.moving("web", counts)
	counts[a] = flowCount{toGuest: 175}
	has(a, b)
	h.got("web", map[netip.Addr]flowCount{a: {toGuest: 155}, b: {toGuest: 7}}, false)
	want("back again", 162)
}

// TestTriesFromWhatWasGivenUp: what a guest's kernel sends from an address that the guest has given up passes the edges
// or not, and the guest does not count it. It hides nothing of what the guest sends from there once it has it again.
func TestTriesFromWhatWasGivenUp(t *testing.T) {
	a, b := netip.MustParseAddr("10.1.1.10"), netip.MustParseAddr("10.2.1.10")
	counts, own, all := map[netip.Addr]flowCount{}, map[netip.Addr]flowCount{}, map[netip.Addr]bool{a: true, b: true}
	var h holdings
	anew := false
	has := func(addr netip.Addr) {
		h.take("web", addr, counts[addr], false)
		h.keeps("web", []netip.Addr{addr})
		h.got("web", own, anew)
	}
	want := func(when string, from int64) {
		t.Helper()
		if got := total(missing(h.passed("web", counts, all), own, anew)); got != (flowCount{fromGuest: from}) {
			t.Errorf("%s: %+v are missing, want %d from it", when, got, from)
		}
	}
	counts[a], own[a] = flowCount{100, 198}, flowCount{100, 200}
	has(a)
	want("two are on their way", 2)
	has(b)
	counts[a] = flowCount{100, 199}
	want("one of them has come, and it has moved", 1)
	counts[a] = flowCount{106, 206}
	has(b)
	want("the other, and six tries", 0)
	h.moving("web", counts)
	counts[a], own[a] = flowCount{110, 206}, flowCount{104, 201}
	has(a)
	want("back again, and one is lost", 1)
	counts[a], own[a] = flowCount{110, 216}, flowCount{104, 211}
	has(a)
	want("later", 1)

	has(b)
	anew, own = true, nil
	has(b)
	h.moving("web", counts)
	own = map[netip.Addr]flowCount{a: {0, 5}}
	counts[a] = flowCount{110, 220}
	has(a)
	if got, want := total(missing(h.passed("web", counts, all), own, true)).fromGuest, 5-int64(200+10+4); got != want {
		t.Errorf("booted again: %d missing from it, want %d", got, want)
	}
}

// TestGotWhatAnotherHad: a guest has had an address that another gave up since it was moved, and not only since it is
// known to have it.
func TestGotWhatAnotherHad(t *testing.T) {
	a, b := netip.MustParseAddr("10.1.1.10"), netip.MustParseAddr("10.2.1.10")
	counts, all := map[netip.Addr]flowCount{}, map[netip.Addr]bool{a: true, b: true}
	var h holdings
	has := func(guest string, addr netip.Addr) {
		h.take(guest, addr, counts[addr], false)
		h.keeps(guest, []netip.Addr{addr})
	}
	counts[a], counts[b] = flowCount{100, 200}, flowCount{10, 20}
	has("web", a)
	has("db", b)
	h.moving("db", counts) // a move that was called off
	counts[a] = flowCount{150, 260}
	has("web", a)
	h.handed("web", counts)
	counts[a] = flowCount{153, 260}
	has("web", netip.MustParseAddr("10.3.1.10"))
	counts[a] = flowCount{154, 261}
	h.moving("db", counts)
	counts[a] = flowCount{160, 280}
	has("db", a)
	counts[a] = flowCount{161, 282}
	if got, want := h.passed("db", counts, all)[a], (flowCount{7, 21}); got != want {
		t.Errorf("db's were %+v, want %+v", got, want)
	}
	if got, want := h.passed("web", counts, all)[a], (flowCount{150, 261}); got != want {
		t.Errorf("web's were %+v, want %+v", got, want)
	}
	h.moving("web", counts)
	has("db", a)
	counts[a] = flowCount{165, 285}
	has("db", a) // it is known to have it after web's move began
	has("web", a)
	counts[a] = flowCount{166, 287}
	if got, want := h.passed("web", counts, all)[a].minus(flowCount{150, 261}), (flowCount{1, 2}); got != want {
		t.Errorf("of the other's, web's were %+v, want %+v", got, want)
	}
}

// TestMissing: more than passed one way, or of one address, does not hide what is missing the other way, or of another.
func TestMissing(t *testing.T) {
	a, b, c := netip.MustParseAddr("10.1.1.10"), netip.MustParseAddr("10.2.1.10"), netip.MustParseAddr("10.3.1.10")
	edge := map[netip.Addr]flowCount{a: {100, 50}, b: {7, 9}, c: {4, 0}}
	own := map[netip.Addr]flowCount{a: {103, 52}, b: {5, 8}}
	if got, want := total(missing(edge, own, false)), (flowCount{2 + 4, 2}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got, want := total(missing(edge, own, true)), (flowCount{2 + 4 - 3, 2 - 1}); got != want {
		t.Errorf("booted again: %+v, want %+v", got, want)
	}
}
