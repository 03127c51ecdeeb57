package agent

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/guests"
	"godwit/agent/record"
	"godwit/agent/statefile"
	"godwit/internal/clock"
	"godwit/migration"
	"godwit/netstate"
	"godwit/netstate/tunnel"
	"godwit/vm/guest"
)

// TestNotListed: a report without a list says why, once and truly: an agent that was started again since the handover
// never had it, and the guest's channel may be as good as ever.
func TestNotListed(t *testing.T) {
	m := landing(t, talking(t, map[string]guest.Handler{}))
	m.survive(t.Context())
	const want = "the guest's connections are not known: none were listed in the handover: its channel was silent, or the agent was started again since"
	if s := m.rec.Snapshot().Survival; s == nil || s.Unknown != want {
		t.Errorf("%+v, want %q", s, want)
	}
}

// TestGuestWithoutChannel: of a guest that has no channel it is not said that its channel is silent, nor that it was.
func TestGuestWithoutChannel(t *testing.T) {
	m := landing(t, guests.New(care.Held{}, nil))
	m.plan.Network, m.plan.Next = "tunnel", m.plan.Held
	if err := m.handOver(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.survive(t.Context())
	const want = "the guest's connections are not known: it has no guest channel"
	if r := m.rec.Snapshot(); r.Survival == nil || r.Survival.Unknown != want || len(r.Notes) > 0 {
		t.Errorf("notes %q, %+v; want %q", r.Notes, r.Survival, want)
	}
}

// TestLeaseEndsSurvival: what still used the tunnel when its lease ended is lost; the
// history on the disk says so too, also of a migration of an earlier agent, by whose clock its report is.
func TestLeaseEndsSurvival(t *testing.T) {
	a := bareAgent(t, &config.Config{})
	path := a.config.StatePath("history", "m-00000001-destination.json")
	for _, c := range []struct {
		expired bool
		want    string
	}{{true, "lost: the lease of the tunnel ended"}, {false, "ended: through the tunnel until it ended"}} {
		rep := record.Report{ID: "m-00000001", Ended: 1, Boot: clock.Boot(), Booted: time.Now().Add(-clock.SinceBoot() - 3*time.Hour).UnixNano(), Survival: &record.Survival{Tunnelled: 1, Connections: []record.Survivor{{Kind: "tcp", Fate: migration.Tunnelled}}}}
		if err := statefile.Write(path, rep); err != nil {
			t.Fatal(err)
		}
		a.settleSurvival(detour.Detour{ID: "m-00000001-paris"}, c.expired)
		var got record.Report
		if err := statefile.Read(path, &got); err != nil {
			t.Fatal(err)
		}
		if all := got.Survival.Connections; len(all) != 1 || string(all[0].Fate)+": "+all[0].Why != c.want || got.Survival.Tunnelled != 0 {
			t.Errorf("expired %v: %+v, want %q", c.expired, all, c.want)
		}
		if off := time.Until(time.Unix(0, got.Survival.Connections[0].At)) + 3*time.Hour; off.Abs() > time.Minute {
			t.Errorf("expired %v: it ended %v later than it did, by the clock of its migration", c.expired, off)
		}
	}
}

// closing is the channel of a guest whose container has just closed what it had begun.
type closing struct {
	idle
	closed guest.Connection
}

func (c closing) Connections(context.Context, ...netip.Addr) (guest.Connections, error) {
	return guest.Connections{List: []guest.Connection{c.closed}}, nil
}

// TestLastUserHasEnded: what the last users of a tunnel came to is asked before it goes, however many they are: those
// that were closed are not lost.
func TestLastUserHasEnded(t *testing.T) {
	hostWithTunnels(t, func(ctx context.Context, a *Agent) error {
		closed := guest.Connection{Kind: guest.KindTCP, Local: netip.MustParseAddrPort("10.1.1.5:40000"), Remote: netip.MustParseAddrPort("198.18.0.8:5432"), Outward: true, Over: true}
		g := askedBy(closing{closed: closed}, guests.New(care.Held{Description: config.Description{Name: "web"}}, nil))
		d := visitsByTunnel(t, a)
		d.Tunnel, d.Until = tunnel.Config{}, time.Now().Add(time.Hour)
		underCare(t, a.guests, g.Name(), g)
		place(a, d)
		rec := record.New("rome", migration.Plan{ID: d.ID, Guest: g.Name()}, time.Now())
		a.records.Add(rec)
		const most = 300 // they are not looked at each second
		s := &record.Survival{Total: most, Tunnelled: most}
		for range most {
			s.Connections = append(s.Connections, record.Survivor{Kind: closed.Kind, Local: closed.Local, Remote: closed.Remote, Fate: migration.Tunnelled, Outward: true})
		}
		rec.Edit(func(r *record.Report) { r.Survival = s })
		if err := a.lookAfter(ctx, *d); err != nil {
			return err
		}
		if s := rec.Snapshot().Survival; s.Ended != most || len(a.detours.List("")) > 0 {
			return fmt.Errorf("%d have ended, %d are lost; left: %+v", s.Ended, s.Lost, a.detours.List(""))
		}
		return nil
	})
}

// TestEndsByThisClock: when a connection ended is told by the clock of the report that it is in, whichever host saw it.
func TestEndsByThisClock(t *testing.T) {
	const second = int64(time.Second)
	there := func() *record.Survival {
		return &record.Survival{Connections: []record.Survivor{{Fate: migration.EndedItself, At: 90 * second}, {Fate: migration.Tunnelled}}}
	}
	var r record.Report
	r.TakeOver(record.Report{Survival: there()}, 60*second)
	if all := r.Survival.Connections; all[0].At != 30*second || all[1].At != 0 {
		t.Errorf("as it landed: %+v", all)
	}
	a, _, d := leasing(t)
	rec := record.New("rome", migration.Plan{ID: d.ID}, time.Now())
	a.records.Add(rec)
	seen := rec.Now()
	ended := EndedDetour{Survival: &record.Survival{Connections: []record.Survivor{{Fate: migration.EndedItself, At: seen + 60*second}}}, Now: seen + 60*second}
	body, err := json.Marshal(ended)
	if err != nil {
		t.Fatal(err)
	}
	q := &http.Request{TLS: &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{DNSNames: []string{d.Peer}}}}, Body: io.NopCloser(bytes.NewReader(body))}
	q.SetPathValue("id", d.ID)
	if _, err := a.peerEndDetour(q); err != nil {
		t.Error(err)
	}
	if at := rec.Snapshot().Survival.Connections[0].At; at < seen || at > rec.Now() {
		t.Errorf("as the detour ended: %v before it was told, %v", time.Duration(seen-at), time.Duration(rec.Now()-at))
	}
}

// listless is the channel of a guest that has no connections.
type listless struct{ datagrams }

func (listless) Connections(context.Context, ...netip.Addr) (guest.Connections, error) {
	return guest.Connections{}, nil
}

// TestDatagramsAtHome: datagrams to an address that a guest keeps at home, or has as its old one there, which
// no tunnel counts any more, are told to have ended once none has come for a while, by the guest's own count; where it
// has none they are taken to go on.
func TestDatagramsAtHome(t *testing.T) {
	own := netip.MustParseAddrPort("10.2.1.20:53")
	for what, c := range map[string]struct {
		counts []uint64 // at looks that are half a FlowQuiet apart
		goOn   bool
		by     string // the network of its move
	}{
		"they ceased": {[]uint64{7, 8, 8, 8}, false, "tunnel"}, "they come": {[]uint64{7, 7, 8, 8}, true, "tunnel"}, "nobody counts": {[]uint64{0, 0, 0, 0}, true, "tunnel"},
		"they ceased to come to its old one": {[]uint64{7, 8, 8, 8}, false, "mptcp"}, "they come to its old one": {[]uint64{7, 7, 8, 8}, true, "drain"},
	} {
		synctest.Test(t, func(t *testing.T) {
			a, g, d := leasing(t)
			f := datagrams{forgetful{silent: new(bool), dropped: new([]netip.Addr)}, map[netip.Addr]uint64{}}
			g.SpeakBy(listless{f})
			g.Remember(func(h *care.Held) {
				h.Addresses = []migration.Address{{Prefix: netip.PrefixFrom(own.Addr(), 24), Home: a.config.Host, Handover: d.ID}}
			})
			s := &record.Survival{}
			o := record.Judge{Held: []netip.Addr{own.Addr()}, Home: []netip.Addr{own.Addr()}, Keeps: c.by == "tunnel"}
			o.AddFlows(s, []netstate.Flow{{Protocol: "udp", Guest: own, Client: netip.MustParseAddrPort("198.18.0.9:53")}}, false)
			rec := a.records.Find(d.ID)
			rec.Edit(func(r *record.Report) { r.Survival, r.Network = s, c.by })
			for _, count := range c.counts {
				f.counts[own.Addr()] = count
				a.followSurvival(t.Context(), g, *d, false)
				time.Sleep(record.FlowQuiet / 2)
			}
			if s := rec.Snapshot().Survival; (s.Tunnelled == 1) != c.goOn || s.Total != 1 {
				t.Errorf("%s: %+v", what, s)
			}
		})
	}
}

// TestUncountedAtHome: datagrams that nobody counts, to an old address at home, were told as lost where that was kept
// beyond its lease, for what has ended since.
func TestUncountedAtHome(t *testing.T) {
	own := netip.MustParseAddrPort("10.1.1.20:53")
	a, g, d := leasing(t)
	g.SpeakBy(listless{datagrams{forgetful{silent: new(bool), dropped: new([]netip.Addr)}, map[netip.Addr]uint64{}}})
	g.Remember(func(h *care.Held) {
		h.Addresses = []migration.Address{{Prefix: netip.PrefixFrom(own.Addr(), 24), Home: a.config.Host}, {Prefix: netip.MustParsePrefix("10.1.1.30/24"), Home: a.config.Host, Handover: d.ID}}
	})
	s := &record.Survival{}
	o := record.Judge{Held: []netip.Addr{own.Addr()}, Home: []netip.Addr{own.Addr()}, Kept: true}
	o.AddFlows(s, []netstate.Flow{{Protocol: "udp", Guest: own, Client: netip.MustParseAddrPort("198.18.0.9:53")}}, false)
	rec := a.records.Find(d.ID)
	rec.Edit(func(r *record.Report) { r.Survival, r.Network = s, "drain" })
	past := *d
	past.Until = time.Now().Add(-time.Minute)
	place(a, &past)
	if err := a.lookAtVisitor(t.Context(), g, past, true); err != nil {
		t.Fatal(err)
	}
	if s := rec.Snapshot().Survival; s.Ended != 1 || s.Lost != 0 {
		t.Errorf("%+v", s)
	}
}

// listed lists connections as guests do: those with an end on what it is asked for.
type listed struct {
	datagrams
	all []guest.Connection
}

func (l listed) Connections(_ context.Context, addrs ...netip.Addr) (out guest.Connections, _ error) {
	on := func(end netip.AddrPort) bool { return slices.Contains(addrs, end.Addr()) }
	for _, c := range l.all {
		if on(c.Local) || slices.ContainsFunc(c.Working, on) {
			out.List = append(out.List, c)
		}
	}
	return out, nil
}

// TestLivesOnWhatWasMeant: where the handover failed, and the guest could not give up the next address that was meant, a
// connection that began on an address which the guest has no more was told to have ended once it worked on that alone.
func TestLivesOnWhatWasMeant(t *testing.T) {
	began, old, meant := netip.MustParseAddrPort("10.3.1.20:80"), netip.MustParseAddrPort("10.1.1.20:80"), netip.MustParseAddrPort("10.2.1.20:80")
	a, g, d := leasing(t)
	one := guest.Connection{Kind: guest.KindMPTCP, Local: began, Remote: netip.MustParseAddrPort("198.18.0.9:4000"), Working: []netip.AddrPort{old}}
	held := []migration.Address{{Prefix: netip.PrefixFrom(old.Addr(), 24)}}
	s := record.Judge{Held: migration.Bare(held), Keeps: true}.Survive(guest.Connections{List: []guest.Connection{one}}, guest.Connections{List: []guest.Connection{one}})
	rec := a.records.Find(d.ID)
	rec.Edit(func(r *record.Report) { r.Survival, r.Network, r.Old, r.Next = s, "tunnel", held, held })
	for _, c := range []struct {
		works []netip.AddrPort
		lives bool
	}{{one.Working, true}, {[]netip.AddrPort{meant}, true}, {nil, false}} {
		l := listed{datagrams: datagrams{forgetful{silent: new(bool), dropped: new([]netip.Addr)}, map[netip.Addr]uint64{}}}
		if one.Working = c.works; c.lives {
			l.all = []guest.Connection{one}
		}
		g.SpeakBy(l)
		a.followSurvival(t.Context(), g, *d, true)
		if s := rec.Snapshot().Survival; (s.Tunnelled == 1) != c.lives {
			t.Errorf("it works on %v: %+v", c.works, s)
		}
	}
}

// TestThirdNIC: a connection that a NIC of the guest carries which no migration touches is told to live, wherever it
// began, as the guest lands and as what leads to its old address ends.
func TestThirdNIC(t *testing.T) {
	old, third := netip.MustParseAddrPort("10.1.1.10:80"), netip.MustParseAddrPort("172.16.0.10:80")
	all := []guest.Connection{
		{Kind: guest.KindMPTCP, Local: old, Remote: netip.MustParseAddrPort("198.18.0.9:4000"), Working: []netip.AddrPort{third}},
		{Kind: guest.KindMPTCP, Local: third, Remote: netip.MustParseAddrPort("198.18.0.9:4001"), Working: []netip.AddrPort{third}},
	}
	info := guest.Info{NICs: []guest.NIC{
		{MAC: "52:54:00:00:00:01", Addrs: []netip.Prefix{netip.PrefixFrom(old.Addr(), 24)}}, {MAC: "52:54:00:00:00:03", Addrs: []netip.Prefix{netip.PrefixFrom(third.Addr(), 24)}},
	}}
	connections := func(_ context.Context, _ string, raw json.RawMessage) (any, error) {
		var ask struct{ Addrs []netip.Addr }
		err := json.Unmarshal(raw, &ask)
		out, lerr := listed{all: all}.Connections(t.Context(), ask.Addrs...)
		return out, errors.Join(err, lerr)
	}
	g := talking(t, map[string]guest.Handler{"connections": connections, "info": answers(info, nil)})
	m := landing(t, g)
	before := guest.Connections{List: slices.Clone(all)}
	before.List[1].Working = append(before.List[1].Working, old)
	was := make(chan listing, 1)
	was <- listing{Connections: before}
	m.work.listedBefore, m.work.joins = was, &guest.Joins{}
	m.survive(t.Context())
	if s := m.rec.Snapshot().Survival; s.Moved != 2 || *s.Connections[0].Now != third || s.Connections[0].Why == "" {
		t.Errorf("as it landed: %+v", s)
	}
	a, leased, d := leasing(t)
	leased.Remember(func(h *care.Held) { h.Description.NICs = g.Held().Description.NICs })
	leased.SpeakBy(g.Channel())
	held := []migration.Address{{Prefix: netip.PrefixFrom(old.Addr(), 24)}}
	s := record.Judge{Held: migration.Bare(held), Kept: true}.Survive(before, guest.Connections{List: before.List[1:]})
	a.records.Find(d.ID).Edit(func(r *record.Report) { r.Survival, r.Old = s, held })
	a.followSurvival(t.Context(), leased, *d, true)
	a.settleSurvival(*d, true)
	if s := a.records.Find(d.ID).Snapshot().Survival; s.Moved != 1 || s.Lost != 0 {
		t.Errorf("as the lease ended: %+v", s)
	}
}

// TestNoThirdNIC: a device that lies over the guest's NICs, or has an address that the migration knows of, or one of the
// subnet which the guest left, as VRRP's, is no NIC that it leaves as it is: a connection that works by that alone is
// lost with the old address.
func TestNoThirdNIC(t *testing.T) {
	old, next, other := netip.MustParseAddrPort("10.1.1.10:80"), netip.MustParseAddrPort("10.2.1.10:80"), netip.MustParseAddrPort("[fd00::10]:80")
	for name, c := range map[string]struct {
		nic   guest.NIC
		works netip.AddrPort
	}{
		"a bridge, by the old address":  {guest.NIC{MAC: "9a:00:00:00:00:01", Above: true}, old},
		"a bridge, by one of its own":   {guest.NIC{MAC: "9a:00:00:00:00:01", Above: true}, other},
		"a macvlan, by the old address": {guest.NIC{MAC: "9a:00:00:00:00:01"}, old},
		"a macvlan, by one beside that": {guest.NIC{MAC: "00:00:5e:00:01:07"}, netip.MustParseAddrPort("10.1.1.100:80")},
	} {
		for _, p := range []netip.AddrPort{old, next, other, c.works} {
			c.nic.Addrs = append(c.nic.Addrs, netip.PrefixFrom(p.Addr(), 24))
		}
		all := []guest.Connection{
			{Kind: guest.KindMPTCP, Local: old, Remote: netip.MustParseAddrPort("198.18.0.9:4000"), Working: []netip.AddrPort{c.works}},
			{Kind: guest.KindMPTCP, Local: old, Remote: netip.MustParseAddrPort("198.18.0.9:4001"), Working: []netip.AddrPort{other}}, // so that the guest is asked
		}
		g := talking(t, map[string]guest.Handler{"connections": answers(guest.Connections{List: all}, nil), "info": answers(guest.Info{NICs: []guest.NIC{c.nic}}, nil)})
		m := landing(t, g)
		was := make(chan listing, 1)
		was <- listing{Connections: guest.Connections{List: all}}
		m.work.listedBefore, m.work.joins = was, &guest.Joins{}
		m.survive(t.Context())
		if s := m.rec.Snapshot().Survival; s.Total != 2 || s.Connections[0].Fate != migration.Lost {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// TestThirdNICBesideWhatStays: as some of a guest's old addresses go, a connection that works by one that stays, and by
// a NIC that no migration touches, goes on to be told by the former, and has moved as that goes, too.
func TestThirdNICBesideWhatStays(t *testing.T) {
	goes, stays, third := netip.MustParseAddrPort("10.1.1.20:80"), netip.MustParseAddrPort("10.1.1.21:80"), netip.MustParseAddrPort("172.16.0.10:80")
	for name, c := range map[string]struct {
		began    netip.AddrPort
		together bool // by one detour
	}{"by another detour": {stays, false}, "by one detour": {stays, true}, "by one detour, and it began on what goes": {goes, true}} {
		all := guest.Connections{List: []guest.Connection{
			{Kind: guest.KindMPTCP, Local: c.began, Remote: netip.MustParseAddrPort("198.18.0.9:4000"), Working: []netip.AddrPort{stays, third}},
		}}
		info := guest.Info{NICs: []guest.NIC{{MAC: "52:54:00:00:00:03", Addrs: []netip.Prefix{netip.PrefixFrom(third.Addr(), 24)}}}}
		a, g, d := leasing(t)
		a.config.Network.Bridge = "no-such-bridge" // the kernel's part is told by its error
		g.SpeakBy(talking(t, map[string]guest.Handler{"connections": answers(all, nil), "info": answers(info, nil)}).Channel())
		d.Visiting = []netstate.Visiting{{Addr: stays.Addr()}}
		held := []migration.Address{{Prefix: netip.PrefixFrom(stays.Addr(), 24)}}
		if second := (netstate.Visiting{Addr: goes.Addr(), Tunnel: d.Tunnel.Name}); c.together {
			d.Visiting, held = append(d.Visiting, second), append(held, migration.Address{Prefix: netip.PrefixFrom(goes.Addr(), 24)})
		} else {
			place(a, &detour.Detour{ID: "m-00000002", Guest: g.Name(), Leased: true, Peer: "oslo", Visiting: []netstate.Visiting{second}, Tunnel: d.Tunnel})
			a.records.Add(record.New("rome", migration.Plan{ID: "m-00000002", Guest: g.Name()}, time.Now()))
		}
		place(a, d)
		s := record.Judge{Held: migration.Bare(held), Kept: true}.Survive(all, all)
		rec := a.records.Find(d.ID)
		rec.Edit(func(r *record.Report) { r.Survival, r.Old = s, held })
		a.endVisits(t.Context(), g, []netip.Addr{goes.Addr()}, true) //nolint:errcheck // as above
		if s := rec.Snapshot().Survival; s.Tunnelled != 1 {
			t.Errorf("%s: as another address went: %+v", name, s)
		}
		a.endVisits(t.Context(), g, []netip.Addr{stays.Addr()}, true) //nolint:errcheck // as above
		if s := rec.Snapshot().Survival; s.Moved != 1 || *s.Connections[0].Now != third {
			t.Errorf("%s: as its own went: %+v", name, s)
		}
	}
}
