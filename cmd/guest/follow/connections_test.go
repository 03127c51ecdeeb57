package follow

import (
	"encoding/json"
	"net/netip"
	"slices"
	"testing"

	"godwit/vm/guest"
)

// TestListsKeepWhatDoesNotFit: each part can be asked for again, and a list that another
// has replaced is none any more.
func TestListsKeepWhatDoesNotFit(t *testing.T) {
	many := make([]guest.Connection, guest.ConnectionsListed+5)
	l := Lists{number: 4, last: many}
	for range 2 {
		rest, err := l.Connections(nil, 4, guest.ConnectionsListed)
		if err != nil || len(rest.List) != 5 || rest.Omitted != 0 || rest.Number != 4 {
			t.Errorf("%d listed, %d omitted, of list %d, %v", len(rest.List), rest.Omitted, rest.Number, err)
		}
	}
	for _, wrong := range []struct {
		number uint64
		from   int
	}{{3, 2000}, {4, -1}, {4, len(many) + 1}} {
		if none, err := l.Connections(nil, wrong.number, wrong.from); err != nil || len(none.List) != 0 || none.Omitted != 0 {
			t.Errorf("%+v: %d listed, %d omitted, %v", wrong, len(none.List), none.Omitted, err)
		}
	}
	if begun := part(many, 5, 0); len(begun.List) != guest.ConnectionsListed || begun.Omitted != 5 {
		t.Errorf("%d listed, %d omitted", len(begun.List), begun.Omitted)
	}
}

// TestConnectionsListsBothKinds: one listing tells of MPTCP connections and of plain ones.
func TestConnectionsListsBothKinds(t *testing.T) {
	setUp(t)
	near, _ := connect(t, true)
	var l Lists
	all, err := l.Connections([]netip.Addr{from}, 0, 0)
	if err != nil || len(all.List) != 1 || all.List[0].Kind != guest.KindMPTCP || all.List[0].Remote.String() != near.LocalAddr().String() {
		t.Fatalf("%+v, %v", all, err)
	}
	if again, err := l.Connections([]netip.Addr{from}, 0, 0); err != nil || again.Number == all.Number || l.last != nil {
		t.Errorf("%+v, %v: want another list, and nothing kept of what fits", again, err)
	}
}

// TestTellOver: of what is over a list has those alone that one before had told, also where nobody heard that one.
func TestTellOver(t *testing.T) {
	one := func(port uint16, over bool) guest.Connection {
		return guest.Connection{Kind: guest.KindTCP, Local: netip.AddrPortFrom(from, port), Remote: netip.AddrPortFrom(from, 80), Outward: true, Over: over}
	}
	var l Lists
	for i, c := range []struct{ all, want []guest.Connection }{
		{[]guest.Connection{one(1, false), one(2, true)}, []guest.Connection{one(1, false)}},
		{[]guest.Connection{one(1, true), one(2, true), one(3, true)}, []guest.Connection{one(1, true)}},
		{[]guest.Connection{one(1, true), one(4, false)}, []guest.Connection{one(1, true), one(4, false)}},
		{nil, nil},
		{[]guest.Connection{one(1, true)}, nil},
	} {
		if l.tellOver(&c.all); !slices.EqualFunc(c.all, c.want, func(a, b guest.Connection) bool { return a.Local == b.Local && a.Over == b.Over }) {
			t.Errorf("list %d: %+v, want %+v", i, c.all, c.want)
		}
	}
}

// TestPartsFitIntoALine: also of connections with many subflows and long addresses, and each connection comes in one part.
func TestPartsFitIntoALine(t *testing.T) {
	end := netip.MustParseAddrPort("[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535")
	for subflows := range 10 {
		all := make([]guest.Connection, 2*guest.ConnectionsListed+1)
		for i := range all {
			all[i] = guest.Connection{Kind: guest.KindMPTCP, Local: end, Remote: end, State: "new-syn-recv", Working: slices.Repeat([]netip.AddrPort{end}, subflows),
				Fallback: true, Outward: true, Over: true}
		}
		come, parts := 0, 0
		for ; come < len(all); parts++ {
			p := part(all, 1<<63, come)
			if come += len(p.List); len(p.List) == 0 || len(p.List) > guest.ConnectionsListed || p.Omitted != len(all)-come {
				t.Fatalf("%d subflows: a part of %d, %d omitted, after %d", subflows, len(p.List), p.Omitted, come)
			}
			const head = 100 // of the line
			if line, err := json.Marshal(p); err != nil || len(line)+head > guest.MaxLine {
				t.Fatalf("%d subflows: %d connections take %d bytes of %d, %v", subflows, len(p.List), len(line), guest.MaxLine, err)
			}
		}
		if parts > 5 {
			t.Errorf("%d subflows: %d parts", subflows, parts)
		}
	}
}
