package record

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"godwit/migration"
	"godwit/netstate"
	"godwit/vm/guest"
)

func port(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

// fates are the fates and reasons of a report, in its order.
func fates(s *Survival) []string {
	var out []string
	for _, c := range s.Connections {
		out = append(out, string(c.Fate)+": "+c.Why)
	}
	return out
}

func TestSurvive(t *testing.T) {
	old, next := netip.MustParseAddr("10.1.1.10"), netip.MustParseAddr("10.2.1.10")
	at := func(a netip.Addr, p uint16) netip.AddrPort { return netip.AddrPortFrom(a, p) }
	one := func(kind, remote string, working ...netip.AddrPort) guest.Connection {
		return guest.Connection{Kind: kind, Local: at(old, 80), Remote: port(remote), Working: working}
	}
	fell := one("tcp", "198.18.0.6:6")
	fell.Fallback = true
	outward := one("tcp", "198.18.0.8:8")
	outward.Outward = true
	closed := outward
	closed.Over = true
	before := guest.Connections{List: []guest.Connection{
		one("mptcp", "198.18.0.1:1", at(old, 80)), one("mptcp", "198.18.0.2:2", at(old, 80)), one("mptcp", "198.18.0.3:3", at(old, 80)),
		one("mptcp", "198.18.0.4:4", at(old, 80)), one("tcp", "198.18.0.5:5"), fell, one("udp", "198.18.0.7:7"),
	}}
	after := guest.Connections{List: []guest.Connection{
		one("mptcp", "198.18.0.1:1", at(next, 80)), one("mptcp", "198.18.0.2:2", at(old, 80)), one("mptcp", "198.18.0.3:3"),
		one("tcp", "198.18.0.5:5"), fell, one("udp", "198.18.0.7:7"),
	}}
	joins := &guest.Joins{Unable: []guest.Unable{{Remote: port("198.18.0.2:2"), Why: "its limits"}}}
	now := int64(1000e9)
	o := Judge{Held: []netip.Addr{old}, Next: []netip.Addr{next}, Kept: true, Joins: joins, Now: now}
	for _, c := range []struct {
		name   string
		o      Judge
		before guest.Connections
		after  guest.Connections
		want   []string
		sums   [5]int // total, moved, tunnelled, ended, lost
	}{
		{"each its fate", o, before, after, []string{
			"moved: ", "tunnelled: its limits", "lost: no subflow of it works any more", "ended: closed by one of its ends during the handover",
			"tunnelled: plain TCP cannot change its address", "tunnelled: fell back from MPTCP to plain TCP", "tunnelled: UDP cannot change its address",
		}, [5]int{7, 1, 4, 1, 1}},
		{"old address withdrawn", Judge{Held: o.Held, Next: o.Next, Now: now}, guest.Connections{List: before.List[4:5]}, after,
			[]string{"lost: its old address was withdrawn"}, [5]int{1, 0, 0, 0, 1}},
		{"address kept for good", Judge{Held: o.Held, Keeps: true, Now: now}, guest.Connections{List: before.List[:1]}, before,
			[]string{"tunnelled: the guest keeps its address"}, [5]int{1, 0, 1, 0, 0}},
		{"address kept, and at home", Judge{Held: o.Held, Keeps: true, Home: o.Held, Now: now}, guest.Connections{List: before.List[:1]}, before,
			[]string{"tunnelled: the guest keeps its address, which is at home there: no tunnel"}, [5]int{1, 0, 1, 0, 0}},
		{"a container's own, which goes on", o, guest.Connections{List: []guest.Connection{outward}}, guest.Connections{List: []guest.Connection{outward}},
			[]string{"tunnelled: plain TCP cannot change its address; it ends as its container sends, if the guest masquerades it"}, [5]int{1, 0, 1, 0, 0}},
		{"a container's own, which does not", o, guest.Connections{List: []guest.Connection{outward}}, guest.Connections{},
			[]string{"lost: forgotten by the guest, which masquerades it, as it left by another NIC, unless it was closed just then"}, [5]int{1, 0, 0, 0, 1}},
		{"a container's own, which was closed", o, guest.Connections{List: []guest.Connection{outward}}, guest.Connections{List: []guest.Connection{closed}},
			[]string{"ended: closed by one of its ends during the handover"}, [5]int{1, 0, 0, 1, 0}},
		{"a container's own, of a list before", o, guest.Connections{List: []guest.Connection{closed}}, guest.Connections{List: []guest.Connection{closed}}, nil, [5]int{}},
		{"a container's own, which ended where the address is kept", Judge{Held: o.Held, Keeps: true, Now: now}, guest.Connections{List: []guest.Connection{outward}}, guest.Connections{},
			[]string{"ended: closed by one of its ends during the handover"}, [5]int{1, 0, 0, 1, 0}},
		{"more stay than the guest says why", Judge{Held: o.Held, Next: o.Next, Kept: true, Joins: &guest.Joins{Omitted: 1}}, guest.Connections{List: before.List[1:2]}, guest.Connections{List: after.List[1:2]},
			[]string{"tunnelled: " + leftUnsaid}, [5]int{1, 0, 1, 0, 0}},
		{"too many to list", o, before, guest.Connections{Omitted: 1, List: after.List[:1]}, []string{"moved: "}, [5]int{1, 1, 0, 0, 0}},
	} {
		s := c.o.Survive(c.before, c.after)
		if diff := cmp.Diff(c.want, fates(s)); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
		if got := [5]int{s.Total, s.Moved, s.Tunnelled, s.Ended, s.Lost}; got != c.sums {
			t.Errorf("%s: sums %v, want %v", c.name, got, c.sums)
		}
	}
	s := o.Survive(before, after)
	if s.Connections[0].Now == nil || *s.Connections[0].Now != at(next, 80) {
		t.Errorf("moved to %v, want %v", s.Connections[0].Now, at(next, 80))
	}
}

// TestBeside: a connection that works by a NIC of the guest which no migration touches is not lost with the old address,
// nor does it end with the tunnel; as long as the old address works as well, which of the two carries it is not known.
func TestBeside(t *testing.T) {
	old, next, third := port("10.1.1.10:80"), port("10.2.1.10:80"), port("172.16.0.10:80")
	began := func(local netip.AddrPort, works ...netip.AddrPort) guest.Connections {
		return guest.Connections{List: []guest.Connection{{Kind: guest.KindMPTCP, Local: local, Remote: port("198.18.0.1:1"), Working: works}}}
	}
	const moved, stays = "moved: " + besideIt, "tunnelled: it was left on its old address"
	for name, c := range map[string]struct {
		local       netip.AddrPort
		works       []netip.AddrPort
		kept        bool
		want, later string // later: as the tunnel ends
	}{
		"it began on the old address":               {old, []netip.AddrPort{third}, false, moved, moved},
		"and that is kept for another one":          {old, []netip.AddrPort{third}, true, moved, moved},
		"it began there":                            {third, []netip.AddrPort{third}, false, moved, moved},
		"it has both":                               {old, []netip.AddrPort{old, third}, true, stays, moved},
		"it has both, and the old one is withdrawn": {old, []netip.AddrPort{old, third}, false, moved, moved},
		"it has followed, too":                      {old, []netip.AddrPort{third, next}, false, "moved: ", "moved: "},
		"it works on what nobody knows":             {old, []netip.AddrPort{port("10.7.1.10:80")}, false, "lost: its old address was withdrawn", "lost: its old address was withdrawn"},
	} {
		o := Judge{Held: []netip.Addr{old.Addr()}, Next: []netip.Addr{next.Addr()}, Beside: map[netip.Addr]bool{third.Addr(): true}, Kept: c.kept, Joins: &guest.Joins{}}
		s := o.Survive(began(c.local, old), began(c.local, c.works...))
		now := fates(s)
		s.FollowBeside(began(c.local, c.works...).List, o.Held, o.Beside)
		if again := fates(s); now[0] != c.want || again[0] != c.want {
			t.Errorf("%s: %q, and then %q; want %q", name, now, again, c.want)
		}
		s.FollowBeside(began(c.local, c.works...).List, nil, o.Beside)
		if last := fates(s); last[0] != c.later {
			t.Errorf("%s: %q as its tunnel ends, want %q", name, last, c.later)
		}
		if at := s.Connections[0].Now; c.later == moved && (at == nil || *at != third) || s.Moved+s.Lost != 1 {
			t.Errorf("%s: it works on %v, %+v", name, at, s)
		}
	}
}

// TestFollowSurvival: what was tunnelled ends, or follows late, or is still there.
func TestFollowSurvival(t *testing.T) {
	old, next := port("10.1.1.10:80"), port("10.2.1.10:80")
	s := &Survival{}
	for i, kind := range []string{"tcp", "tcp", "mptcp", "udp", "udp"} {
		s.Connections = append(s.Connections, Survivor{Kind: kind, Local: old, Remote: netip.AddrPortFrom(netip.MustParseAddr("198.18.0.1"), uint16(i+1)), Fate: migration.Tunnelled})
	}
	client := func(i int) netip.AddrPort { return s.Connections[i].Remote }
	Judge{Held: []netip.Addr{old.Addr()}}.AddFlows(s, []netstate.Flow{
		{Protocol: "udp", Guest: old, Client: client(3)}, {Protocol: "tcp", Guest: old, Client: port("198.18.0.9:9")},
		{Protocol: "udp", Guest: next, Client: port("198.18.0.8:8")}, {Protocol: "udp", Guest: old, Client: port("198.18.0.7:7")},
	}, false)
	if s.Tunnelled != 6 || s.Connections[5].Remote != port("198.18.0.7:7") {
		t.Fatalf("flows added: %+v, want the one of a UDP client nobody knew", s.Connections)
	}
	all := []guest.Connection{{Kind: "tcp", Local: old, Remote: client(0)}, {Kind: "mptcp", Local: old, Remote: client(2), Working: []netip.AddrPort{old, next}}}
	flows := []netstate.Flow{{Protocol: "udp", Guest: old, Client: client(3), Idle: time.Second}, {Protocol: "udp", Guest: old, Client: client(4), Idle: time.Minute}}
	s.Follow(all, flows, []netip.Addr{next.Addr()}, nil, nil, 7e9)
	want := []string{"tunnelled: ", "ended: through the tunnel until it ended", "moved: late", "tunnelled: ",
		"ended: through the tunnel until it ended", "ended: through the tunnel until it ended"}
	if diff := cmp.Diff(want, fates(s)); diff != "" {
		t.Error(diff)
	}
	var many []netstate.Flow
	for i := range uint16(survivorsListed + 7) {
		many = append(many, netstate.Flow{Protocol: "udp", Guest: old, Client: netip.AddrPortFrom(next.Addr(), i)})
	}
	full := &Survival{}
	Judge{Held: []netip.Addr{old.Addr()}}.AddFlows(full, many, false)
	if data, err := json.Marshal(full); full.Total != survivorsListed || full.Omitted != 7 || err != nil || len(data) > 6<<20 {
		t.Errorf("%d listed, %d omitted, %d bytes, %v", full.Total, full.Omitted, len(data), err)
	}
	if s.Connections[1].At != 7e9 || s.Tunnelled != 2 || s.Moved != 1 || s.Ended != 3 {
		t.Errorf("%+v", s)
	}
}

// TestFollowOutward: a container's own connection that was idle in the handover, and that the guest has no more later
// on, was forgotten by it, also where nothing else uses the tunnel by then; not where the guest keeps its address, and
// sends by the same NIC.
func TestFollowOutward(t *testing.T) {
	old, now := port("10.1.1.10:40000"), int64(7e9)
	list := guest.Connections{List: []guest.Connection{{Kind: "tcp", Local: old, Remote: port("198.18.0.8:5432"), Outward: true}}}
	const ended, forgotten = "ended: through the tunnel until it ended", "lost: forgotten by the guest, which masquerades it, as it left by another NIC, unless it was closed just then"
	for _, c := range []struct {
		name  string
		keeps bool
		then  func(*Survival)
		want  string
	}{
		{"looked at", false, func(s *Survival) { s.Follow(nil, nil, nil, nil, nil, now) }, forgotten},
		{"closed", false, func(s *Survival) {
			over := list.List[0]
			over.Over = true
			s.Follow([]guest.Connection{over}, nil, nil, nil, nil, now)
		}, ended},
		{"there still", false, func(s *Survival) { s.Follow(list.List, nil, nil, nil, nil, now) }, "tunnelled: plain TCP cannot change its address; it ends as its container sends, if the guest masquerades it"},
		{"nothing else uses it", false, func(s *Survival) { s.Withdraw(false, now) }, forgotten},
		{"the lease ends", false, func(s *Survival) { s.Withdraw(true, now) }, "lost: the lease of the tunnel ended"},
		{"its address is kept", true, func(s *Survival) { s.Follow(nil, nil, nil, nil, nil, now) }, ended},
	} {
		data, err := json.Marshal(Judge{Held: []netip.Addr{old.Addr()}, Kept: true, Keeps: c.keeps}.Survive(list, list))
		if err != nil {
			t.Fatal(err)
		}
		var s Survival // an agent may be started again between
		if err := json.Unmarshal(data, &s); err != nil {
			t.Fatal(err)
		}
		c.then(&s)
		if got := fates(&s); len(got) != 1 || got[0] != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestWithdrawSome: of a guest that keeps its own address, and loses an older one, connections are lost or ended that
// have their end on that; those of MPTCP that began there, and work on its own, are not.
func TestWithdrawSome(t *testing.T) {
	own, old := port("10.2.1.10:80"), port("10.1.1.10:80")
	var all guest.Connections
	for i, c := range []guest.Connection{
		{Kind: "tcp", Local: own}, {Kind: "tcp", Local: old}, {Kind: "mptcp", Local: own, Working: []netip.AddrPort{own}},
		{Kind: "mptcp", Local: old, Working: []netip.AddrPort{own}}, {Kind: "mptcp", Local: old, Working: []netip.AddrPort{old}},
	} {
		c.Remote = netip.AddrPortFrom(netip.MustParseAddr("198.18.0.8"), uint16(5000+i))
		all.List = append(all.List, c)
	}
	s := Judge{Held: []netip.Addr{own.Addr(), old.Addr()}, Keeps: true}.Survive(all, all)
	for _, to := range []netip.AddrPort{own, old} {
		Judge{Held: []netip.Addr{to.Addr()}}.AddFlows(s, []netstate.Flow{{Protocol: "udp", Guest: to, Client: port("198.18.0.9:53")}}, false)
	}
	s.Follow(all.List, nil, nil, []netip.Addr{own.Addr()}, []netip.Addr{own.Addr()}, 7e9)
	s.Withdraw(true, 7e9, old.Addr())
	const keeps, lost = "tunnelled: the guest keeps its address", "lost: the lease of the tunnel ended"
	if diff := cmp.Diff([]string{keeps, lost, keeps, keeps, lost, "tunnelled: seen in the tunnel", "ended: through the tunnel until it ended"}, fates(s)); diff != "" || s.Tunnelled != 4 || s.Connections[2].Now != nil {
		t.Errorf("%s%+v", diff, s)
	}
}

// TestHomeBesideTheOld: of a guest that keeps its own address at home, and has an old one of elsewhere beside it, each
// connection is told by the address that it has, also as it ends; one of MPTCP that has left its own again goes with
// the old one.
func TestHomeBesideTheOld(t *testing.T) {
	own, old := port("10.2.1.10:80"), port("10.1.1.10:80")
	var all guest.Connections
	for i, c := range []guest.Connection{{Kind: "tcp", Local: own}, {Kind: "tcp", Local: old}, {Kind: "mptcp", Local: old, Working: []netip.AddrPort{old, own}}} {
		c.Remote = netip.AddrPortFrom(netip.MustParseAddr("198.18.0.8"), uint16(5000+i))
		all.List = append(all.List, c)
	}
	held := []netip.Addr{own.Addr(), old.Addr()}
	s := Judge{Held: held, Keeps: true, Home: held[:1]}.Survive(all, all)
	const keeps = "tunnelled: the guest keeps its address"
	if diff := cmp.Diff([]string{keeps + ", which is at home there: no tunnel", keeps, keeps}, fates(s)); diff != "" {
		t.Error(diff)
	}
	s.Follow(all.List, nil, nil, held[:1], held[:1], 7e9)
	all.List[2].Working = []netip.AddrPort{old}
	s.Follow(all.List[2:], nil, nil, held[:1], held[:1], 7e9)
	s.Withdraw(true, 7e9, old.Addr())
	want := []string{"ended: without a tunnel until it ended", "ended: through the tunnel until it ended", "lost: the lease of the tunnel ended"}
	if diff := cmp.Diff(want, fates(s)); diff != "" {
		t.Error(diff)
	}
	led := &Survival{}
	Judge{Held: held, Keeps: true}.AddFlows(led, []netstate.Flow{{Protocol: "udp", Guest: own, Client: port("198.18.0.9:53")}}, false)
	if led.Follow(nil, nil, nil, held[:1], nil, 7e9); led.Ended != 1 {
		t.Errorf("datagrams that ceased to come to its own, by the tunnel: %v", fates(led))
	}
	for _, goOn := range []bool{true, false} {
		came := &Survival{}
		Judge{Held: held, Keeps: true, Home: held[:1]}.AddFlows(came, []netstate.Flow{{Protocol: "udp", Guest: own, Client: port("198.18.0.9:53")}, {Protocol: "udp", Guest: old, Client: port("198.18.0.9:53")}}, false)
		if diff := cmp.Diff([]string{keeps + ", which is at home there: no tunnel", "tunnelled: seen in the tunnel"}, fates(came)); diff != "" {
			t.Error(diff)
		}
		if !came.HasDatagrams(own.Addr()) || came.HasDatagrams(netip.MustParseAddr("10.2.1.11")) {
			t.Error("datagrams come to its own, and to no other there")
		}
		want, home := []string{"ended: without a tunnel until it ended", "ended: through the tunnel until it ended"}, []netip.Addr(nil)
		if goOn {
			want[0], home = keeps+", which is at home there: no tunnel", held[:1]
		}
		came.Follow(nil, nil, nil, held[:1], home, 7e9)
		if diff := cmp.Diff(want, fates(came)); diff != "" || came.HasDatagrams(own.Addr()) != goOn {
			t.Errorf("they go on: %t: %s", goOn, diff)
		}
	}
}

// TestOldAddressAtHome: what stays on the old address of a guest that takes another one where it has come home needs no
// tunnel, and is told so until it ends. Datagrams that nobody counts are not lost as that address is withdrawn, since
// it is not while any are known to come.
func TestOldAddressAtHome(t *testing.T) {
	old, next := port("10.1.1.10:80"), port("10.1.1.11:80")
	var all guest.Connections
	for i, c := range []guest.Connection{{Kind: "tcp"}, {Kind: "mptcp", Working: []netip.AddrPort{next}}, {Kind: "mptcp", Working: []netip.AddrPort{old}}, {Kind: "mptcp", Fallback: true, Working: []netip.AddrPort{old}}} {
		c.Local, c.Remote = old, netip.AddrPortFrom(netip.MustParseAddr("198.18.0.8"), uint16(5000+i))
		all.List = append(all.List, c)
	}
	o := Judge{Held: []netip.Addr{old.Addr()}, Next: []netip.Addr{next.Addr()}, Home: []netip.Addr{old.Addr(), next.Addr()}, Kept: true}
	s := o.Survive(all, all)
	o.AddFlows(s, []netstate.Flow{{Protocol: "udp", Guest: old, Client: port("198.18.0.9:53")}}, false)
	const home = "; its old address is at home there: no tunnel"
	want := []string{"tunnelled: plain TCP cannot change its address" + home, "moved: ", "tunnelled: its old address is at home there: no tunnel", "tunnelled: fell back from MPTCP to plain TCP" + home, "tunnelled: UDP cannot change its address" + home}
	if diff := cmp.Diff(want, fates(s)); diff != "" {
		t.Error(diff)
	}
	s.Follow(all.List[:3], nil, o.Next, nil, o.Home, 7e9)
	if want[3] = "ended: without a tunnel until it ended"; !cmp.Equal(want, fates(s)) {
		t.Error(cmp.Diff(want, fates(s)))
	}
	s.Withdraw(true, 8e9)
	want[0], want[2], want[4] = "lost: the lease of its old address ended", "lost: the lease of its old address ended", "ended: without a tunnel until it ended"
	if diff := cmp.Diff(want, fates(s)); diff != "" {
		t.Error(diff)
	}
}

// TestWorksAtHome: of a guest that has an old address at home and one that is not, a connection of MPTCP needs no
// tunnel where all that it works by is at home, whatever its first end was.
func TestWorksAtHome(t *testing.T) {
	home, away := port("10.2.1.10:80"), port("10.1.1.10:80")
	var all guest.Connections
	for i, c := range []guest.Connection{
		{Local: home, Working: []netip.AddrPort{away}}, {Local: home, Working: []netip.AddrPort{home, away}}, {Local: away, Working: []netip.AddrPort{home}},
		{Kind: "tcp", Local: home}, {Kind: "tcp", Local: away}, {Local: home},
	} {
		if c.Kind == "" {
			c.Kind = "mptcp"
		}
		c.Remote = netip.AddrPortFrom(netip.MustParseAddr("198.18.0.8"), uint16(5000+i))
		all.List = append(all.List, c)
	}
	for keeps, want := range map[bool][]string{
		true: {"tunnelled: the guest keeps its address", "tunnelled: the guest keeps its address", "tunnelled: " + keptAtHome, "tunnelled: " + keptAtHome, "tunnelled: the guest keeps its address", "tunnelled: " + keptAtHome},
		false: {"tunnelled: ", "tunnelled: ", "tunnelled: its old address is at home there: no tunnel", "tunnelled: plain TCP cannot change its address; its old address is at home there: no tunnel",
			"tunnelled: plain TCP cannot change its address", "lost: no subflow of it works any more"},
	} {
		o := Judge{Held: []netip.Addr{home.Addr(), away.Addr()}, Home: []netip.Addr{home.Addr()}, Keeps: keeps, Kept: true}
		if diff := cmp.Diff(want, fates(o.Survive(all, all))); diff != "" {
			t.Errorf("it keeps its addresses: %t: %s", keeps, diff)
		}
	}
}

// TestProbedAtHome: what a prober asks of the echo server at an address that is at home is left out, as the guest does
// not count it, and it was told to have ended while it was answered. Through a tunnel it is seen.
func TestProbedAtHome(t *testing.T) {
	own := netip.MustParseAddr("10.2.1.10")
	flows := []netstate.Flow{{Protocol: "udp", Guest: netip.AddrPortFrom(own, guest.PortEcho), Client: port("198.18.0.9:7100")}}
	for want, home := range map[int][]netip.Addr{0: {own}, 1: nil} {
		s := &Survival{}
		o := Judge{Held: []netip.Addr{own}, Home: home}
		if o.AddFlows(s, flows, false); s.Total != want {
			t.Errorf("at home: %v: %+v", home, s.Connections)
		}
	}
}

// TestSurvivalFits: however much a guest says of its connections, a report of them can be told to another host, and
// read again, which what holds the guest's memory waits for.
func TestSurvivalFits(t *testing.T) {
	old := netip.MustParseAddr("10.1.1.10")
	one := guest.Connection{Kind: "mptcp", Local: netip.AddrPortFrom(old, 80), Remote: port("198.18.0.1:1"), Working: []netip.AddrPort{port("10.1.1.10:80")}}
	var all guest.Connections
	for range guest.ConnectionsMost {
		all.List = append(all.List, one)
	}
	joins := &guest.Joins{Unable: []guest.Unable{{Local: one.Local, Remote: one.Remote, Why: strings.Repeat("<", 200)}}}
	s := Judge{Held: []netip.Addr{old}, Kept: true, Joins: joins, Now: 1e9}.Survive(all, all)
	var flows []netstate.Flow
	for n := range uint16(20_000) {
		flows = append(flows, netstate.Flow{Protocol: "udp", Guest: netip.AddrPortFrom(old, 53), Client: netip.AddrPortFrom(old, n)})
	}
	Judge{Held: []netip.Addr{old}}.AddFlows(s, flows, false)
	data, err := json.Marshal(s)
	if err != nil || len(data) > 6<<20 {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	if s.Tunnelled != len(s.Connections) || len(s.Connections)+s.Omitted != len(all.List)+len(flows) || len(s.Connections) < 1000 {
		t.Errorf("%d of %d connections, %d tunnelled, %d omitted", len(s.Connections), len(all.List)+len(flows), s.Tunnelled, s.Omitted)
	}
}

// TestFollowUnlisted: where no list was made, as the agent was started again in the handover, what was seen in the
// tunnel may be the first subflow of an MPTCP connection. That one moved, and did not end.
func TestFollowUnlisted(t *testing.T) {
	old, next := port("10.1.1.10:80"), port("10.2.1.10:80")
	moved, stays, gone := port("198.18.0.1:1"), port("198.18.0.1:2"), port("198.18.0.1:3")
	s := &Survival{Unknown: "the agent was started again"}
	var flows []netstate.Flow
	for _, client := range []netip.AddrPort{moved, stays, gone} {
		flows = append(flows, netstate.Flow{Protocol: "tcp", Guest: old, Client: client})
	}
	Judge{Held: []netip.Addr{old.Addr()}}.AddFlows(s, flows, true)
	s.Follow([]guest.Connection{
		{Kind: "mptcp", Local: old, Remote: moved, Working: []netip.AddrPort{next}}, {Kind: "tcp", Local: old, Remote: stays},
	}, nil, []netip.Addr{next.Addr()}, nil, nil, 7e9)
	want := []string{"moved: late", "tunnelled: seen in the tunnel", "ended: through the tunnel until it ended"}
	if diff := cmp.Diff(want, fates(s)); diff != "" || s.Connections[0].Kind != "mptcp" {
		t.Error(diff, s.Connections[0].Kind)
	}
}

// TestAway: who was out of reach in the handover is known by the report, until it is known that it was told, or has come.
func TestAway(t *testing.T) {
	old, next, refuses := port("10.1.1.10:80"), port("10.2.1.10:80"), "its limits"
	away, home, other := port("198.18.0.1:1"), port("198.18.0.1:2"), port("198.18.0.1:3")
	one := func(remote netip.AddrPort, why string) Survivor {
		return Survivor{Kind: "mptcp", Local: old, Remote: remote, Fate: migration.Tunnelled, Why: why}
	}
	s := &Survival{Connections: []Survivor{one(away, guest.WhyAway), one(home, guest.WhyAway+oldAtHome), one(other, refuses)}}
	is := func(want ...netip.AddrPort) {
		t.Helper()
		if diff := cmp.Diff(want, s.Away(), cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
			t.Error(diff)
		}
	}
	is(away, home)
	if s.ToldAgain([]guest.Unable{{Remote: away, Why: guest.WhyAway}, {Remote: home, Why: guest.WhyAway + " or lost"}, {Remote: other, Why: "a firewall"}}) {
		t.Errorf("nothing is known of any that was not: %q", fates(s))
	}
	if !s.ToldAgain([]guest.Unable{{Remote: home, Why: refuses}}) {
		t.Error("one was told")
	}
	is(away)
	s.Follow([]guest.Connection{{Kind: "mptcp", Local: old, Remote: away, Working: []netip.AddrPort{next}}, {Kind: "mptcp", Local: old, Remote: home, Working: []netip.AddrPort{old}},
		{Kind: "mptcp", Local: old, Remote: other, Working: []netip.AddrPort{old}}}, nil, []netip.Addr{next.Addr()}, nil, nil, 7e9)
	is()
	if diff := cmp.Diff([]string{"moved: late", "tunnelled: " + refuses + oldAtHome, "tunnelled: " + refuses}, fates(s)); diff != "" {
		t.Error(diff)
	}
}
