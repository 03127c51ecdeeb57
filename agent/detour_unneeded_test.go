package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/limits"
	"godwit/agent/peer"
	"godwit/agent/record"
	"godwit/agent/talk"
	"godwit/internal/clock"
	"godwit/migration"
	"godwit/netstate"
	"godwit/vm/guest"
)

// TestKeepsWhatIsNeeded: a guest that moves on while something needs one of its old addresses gives up, as it settles,
// those that nothing needs: else it would have more after each move. Their homes are not asked to send them here, and
// its source is not to lease them.
func TestKeepsWhatIsNeeded(t *testing.T) {
	address := func(prefix, home string) migration.Address {
		return migration.Address{Prefix: netip.MustParsePrefix(prefix), Home: home}
	}
	next := address("10.2.1.21/24", "rome")
	old := []migration.Address{address("10.1.1.22/24", "paris"), address("10.3.1.21/24", "oslo"), address("10.1.1.21/24", "paris")}
	for name, c := range map[string]struct{ uses, kept []migration.Address }{
		"one":    {old[2:], old[2:]},
		"all":    {old, old},
		"latest": {old[:1], old[:1]},
	} {
		a, g, d := leasing(t)
		a.config.Network.Bridge = "no-such-bridge" // the kernel's part is told by its error
		plan := migration.Plan{ID: d.ID, Guest: g.Name(), From: "paris", To: "rome", Network: "mptcp", Held: old, Next: []migration.Address{next}}
		f := forgetful{silent: new(bool), dropped: new([]netip.Addr), uses: migration.Bare(c.uses)}
		g.SpeakBy(f)
		becomes(g, care.Held{
			Description: config.Description{Name: g.Name(), Memory: 1 << 28, NICs: []config.NIC{{MAC: "52:54:00:00:01:0a"}, {MAC: "52:54:00:00:01:0b"}}}, Dir: a.guestDir(g.Name(), "2"),
			Addresses: slices.Concat(plan.Next, old),
		})
		d.Leased, d.Visiting = false, nil
		for _, addr := range old {
			d.Visiting = append(d.Visiting, netstate.Visiting{Addr: addr.Prefix.Addr(), Tunnel: d.Tunnel.Name})
		}
		place(a, d)
		m := &incoming{a: a, plan: plan, rec: record.New("rome", plan, time.Now()), work: &destinationWork{guest: g, keepsOld: true}}
		began := time.Now()
		err := m.leave(t.Context())
		m.rec.End(migration.Completed, nil, time.Now())
		a.records.Add(m.rec)
		asked := strings.Contains(strings.Join(m.rec.Snapshot().Notes, "\n"), "oslo goes on sending") // it is not known here
		if has := migration.Bare(g.Held().Addresses); !slices.Equal(has, migration.Bare(slices.Concat(plan.Next, c.kept))) || asked != slices.Contains(migration.Bare(c.kept), old[1].Prefix.Addr()) {
			t.Errorf("%s: the guest has %v; oslo asked %v (%v)", name, has, asked, err)
		}
		if asked == g.Asks().MayAskHomes(began.Add(14*time.Second)) {
			t.Errorf("%s: oslo asked %v, and soon again, or else left alone", name, asked)
		}
		if led := a.visiting(g.Name()); !slices.Equal(led, migration.Bare(c.kept)) {
			t.Errorf("%s: led here are %v, of which any may be given to another guest by then", name, led)
		}
		if dropped := *f.dropped; len(dropped) != len(old)-len(c.kept) {
			t.Errorf("%s: the guest gave up %v", name, dropped)
		}
		r := &http.Request{Body: http.NoBody, TLS: &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{DNSNames: []string{"paris"}}}}}
		r.SetPathValue("id", plan.ID)
		landed, err := a.peerLanded(r)
		if err != nil {
			t.Fatal(err)
		}
		if leased := landed.(talk.LandedAnswer).Leased; !slices.Equal(leased, migration.Bare(c.kept)) {
			t.Errorf("%s: leased are %v", name, leased)
		}
	}
}

// retiring is the channel of a guest that is told by which routers it sends, or refuses to hear it.
type retiring struct {
	forgetful
	told  *[]guest.Retire
	fails error
}

func (r retiring) Retire(_ context.Context, p guest.Retire) error {
	*r.told = append(*r.told, p)
	return r.fails
}

// TestSendsByWhatItKeeps: a guest that sends for its old addresses by the router of one of them, as its site gives it none
// of that family, and gives that one up as it settles, sends by the router of one that it keeps: the host answers for no
// other from then on. What is to lead them here stays where it does not.
func TestSendsByWhatItKeeps(t *testing.T) {
	address := func(prefix, gateway, home string) migration.Address {
		return migration.Address{Prefix: netip.MustParsePrefix(prefix), Gateway: netip.MustParseAddr(gateway), Home: home}
	}
	last6, first6 := address("fd00:2:1::b/64", "fd00:2:1::1", "oslo"), address("fd00:1:1::a/64", "fd00:1:1::1", "paris")
	last4, first4 := address("10.2.1.21/24", "10.2.1.1", "oslo"), address("10.1.1.21/24", "10.1.1.1", "paris")
	next4, next6 := address("10.3.1.21/24", "10.3.1.1", "rome"), address("fd00:3:1::21/64", "fd00:3:1::1", "rome")
	for name, c := range map[string]struct {
		old, uses  []migration.Address
		next       migration.Address
		by4, by6   netip.Addr // by which what it keeps is sent, of a family that it is given none of
		from       netip.Addr // by which its old NIC sends
		told, lead bool       // it is told so; what it gave up is led here still
		fails      error
	}{
		"IPv6 at a site of IPv4": {old: []migration.Address{last6, first6}, uses: []migration.Address{first6}, next: next4, by6: first6.Gateway, told: true},
		"IPv4 at a site of IPv6": {old: []migration.Address{last4, first4}, uses: []migration.Address{first4}, next: next6, by4: first4.Gateway, from: first4.Gateway, told: true},
		"its old NIC alone":      {old: []migration.Address{last4, first4}, uses: []migration.Address{first4}, next: next4, from: first4.Gateway, told: true},
		"it keeps the last":      {old: []migration.Address{last6, first6}, uses: []migration.Address{last6}, next: next4},
		"it keeps all":           {old: []migration.Address{last6, first6}, uses: []migration.Address{last6, first6}, next: next4},
		"by the next one's":      {old: []migration.Address{last6, first6}, uses: []migration.Address{first6}, next: next6},
		"it does not do it": {old: []migration.Address{last6, first6}, uses: []migration.Address{first6}, next: next4, by6: first6.Gateway, told: true, lead: true,
			fails: guest.ErrBound},
	} {
		t.Run(name, func(t *testing.T) {
			a, g, d := leasing(t)
			a.config.Network.Bridge = "no-such-bridge"
			plan := migration.Plan{ID: d.ID, Guest: g.Name(), From: "oslo", To: "rome", Network: "mptcp", Held: c.old, Next: []migration.Address{c.next}}
			r := retiring{forgetful{silent: new(bool), dropped: new([]netip.Addr), uses: migration.Bare(c.uses)}, new([]guest.Retire), c.fails}
			g.SpeakBy(r)
			becomes(g, care.Held{
				Description: config.Description{Name: g.Name(), Memory: 1 << 28, NICs: []config.NIC{{MAC: "52:54:00:00:01:0a"}, {MAC: "52:54:00:00:01:0b"}}}, Dir: a.guestDir(g.Name(), "2"),
				Addresses: slices.Concat(plan.Next, c.old),
			})
			d.Leased, d.Visiting = false, nil
			for _, addr := range c.old {
				d.Visiting = append(d.Visiting, netstate.Visiting{Addr: addr.Prefix.Addr(), Gateway: addr.Gateway, Tunnel: d.Tunnel.Name})
			}
			place(a, d)
			m := &incoming{a: a, plan: plan, rec: record.New("rome", plan, time.Now()), work: &destinationWork{guest: g, keepsOld: true}}
			_ = m.leave(t.Context()) // the kernel's part, and oslo's, are told by their errors
			want := guest.Retire{Addrs: migration.Bare(c.uses), MAC: "52:54:00:00:01:0a", NewMAC: "52:54:00:00:01:0b", Keep: true, KeepGatewayV4: c.by4, KeepGatewayV6: c.by6, GatewayV4: c.from}
			if told := *r.told; c.told != (len(told) > 0) || c.told && !reflect.DeepEqual(told[0], want) {
				t.Errorf("it is told %+v, want %v: %+v", told, c.told, want)
			}
			led := c.uses
			if c.lead {
				led = c.old
			}
			if here := a.visiting(g.Name()); !slices.Equal(here, migration.Bare(led)) {
				t.Errorf("led here are %v, want %v", here, migration.Bare(led))
			}
		})
	}
}

// datagrams is the channel of a guest to which so many came.
type datagrams struct {
	forgetful
	counts map[netip.Addr]uint64
}

func (d datagrams) Users(ctx context.Context, addrs ...netip.Addr) (guest.Users, error) {
	users, err := d.forgetful.Users(ctx, addrs...)
	for _, addr := range addrs {
		users.UDPCount += d.counts[addr]
	}
	return users, err
}

// TestGivesUpWhatIsQuiet: a guest that stays where something needs one of its addresses gives the others up, also those
// to which datagrams came, as any name server's answer is one, when none has come for a while; not as it moves on.
func TestGivesUpWhatIsQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, g, d := leasing(t)
		used, quiet, busy, free := netip.MustParseAddr("10.1.1.21"), netip.MustParseAddr("10.1.1.22"), netip.MustParseAddr("10.1.1.23"), netip.MustParseAddr("10.1.1.24")
		f := datagrams{forgetful{silent: new(bool), dropped: new([]netip.Addr), uses: []netip.Addr{used}}, map[netip.Addr]uint64{quiet: 7, busy: 7}}
		g.SpeakBy(f)
		d.Visiting = nil
		for _, addr := range []netip.Addr{used, quiet, busy, free} {
			g.Remember(func(h *care.Held) {
				h.Addresses = append(h.Addresses, migration.Address{Prefix: netip.PrefixFrom(addr, 24), Home: "paris"})
			})
			d.Visiting = append(d.Visiting, netstate.Visiting{Addr: addr, Tunnel: d.Tunnel.Name})
		}
		look := func(when string, want ...netip.Addr) {
			t.Helper()
			if err := a.lookAtVisitor(t.Context(), g, *d, false); err != nil {
				t.Errorf("%s: %v", when, err)
			}
			if has := migration.Bare(g.Held().Addresses); !slices.Equal(has, want) {
				t.Errorf("%s: it has %v", when, has)
			}
		}
		place(a, d)
		look("at first", used, quiet, busy)
		for range 2 {
			time.Sleep(record.FlowQuiet / 2)
			f.counts[busy]++
			if taken(t, g, "m-00000002"); f.counts[busy] == 9 {
				look("as it moves on", used, quiet, busy)
				g.Drop("m-00000002")
				look("after a while", used, busy)
			}
		}
		f.counts[busy]++
		time.Sleep(record.FlowQuiet)
		look("while datagrams come", used, busy)
	})
}

// TestTellsWhoSendsInVain: a home which sends a guest's address to the host that the guest leaves, and which nobody
// asks to send it elsewhere, hears from that host that it is needed no more.
func TestTellsWhoSendsInVain(t *testing.T) {
	needs, gave := netip.MustParseAddr("10.3.1.20"), netip.MustParseAddr("10.3.1.21")
	for name, c := range map[string]struct {
		needed detour.Needed
		told   bool
	}{
		"all are needed, and sent by their home":       {detour.Needed{Leased: []netip.Addr{needs, gave}, Moved: []netip.Addr{needs, gave}, Lease: time.Hour}, false},
		"one is given up":                              {detour.Needed{Leased: []netip.Addr{needs}, Moved: []netip.Addr{needs}, Lease: time.Hour}, true},
		"one is given up, and the other comes by here": {detour.Needed{Leased: []netip.Addr{needs}, Lease: time.Hour}, false},
	} {
		a, _, d := leasing(t)
		asked := make(chan string, 1)
		a.config.Peers = []config.Neighbour{{Host: "oslo", Site: "oslo"}}
		a.links["oslo"] = linked(t, "rome", "oslo", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked <- r.URL.Path
			peer.Answer(w, nil, nil)
		}))
		way := &detour.Detour{ID: "m-00000002-oslo", Guest: d.Guest, Peer: "oslo", Leased: true, Until: clock.Now().Add(time.Hour),
			Visiting: []netstate.Visiting{{Addr: needs, Tunnel: "gwt-2"}, {Addr: gave, Tunnel: "gwt-2"}}}
		place(a, way)
		a.records.Add(record.New("rome", migration.Plan{ID: migrationOf(way.ID), Guest: d.Guest}, time.Now()))
		plan := migration.Plan{ID: d.ID, Guest: d.Guest, To: "paris"}
		m := &outgoing{a: a, plan: plan, work: &sourceWork{}, rec: record.New("rome", plan, time.Now())}
		m.work.needed.Store(&c.needed)
		m.settleDetours(t.Context()) //nolint:errcheck // what of it is in the kernel is not the test's
		a.actors.Wait()
		select {
		case path := <-asked:
			if !c.told || path != "/v1/detours/m-00000002-oslo/end" {
				t.Errorf("%s: oslo was asked for %s", name, path)
			}
		default:
			if c.told {
				t.Errorf("%s: oslo was told nothing", name)
			}
		}
	}
}

// busied is the channel of a guest that takes a second for each answer, and to one of whose addresses a client comes as
// another is asked about.
type busied struct {
	forgetful
	comes map[netip.Addr]netip.Addr // to which, by that which is asked about
	came  *[]netip.Addr
}

func (b busied) Users(ctx context.Context, addrs ...netip.Addr) (guest.Users, error) {
	clock.Sleep(ctx, time.Second)
	b.uses = slices.Concat(b.uses, *b.came)
	users, err := b.forgetful.Users(ctx, addrs...)
	if to, comes := b.comes[addrs[0]]; comes {
		*b.came = append(*b.came, to)
	}
	return users, err
}

// TestAsksInTime: a guest is asked for its addresses one after the other. It gives none up to which a client has come
// meanwhile, and is not asked for longer than one limit, as its next migration waits for that.
func TestAsksInTime(t *testing.T) {
	for name, c := range map[string]struct {
		has, left int
		comes     bool
	}{
		"few":                        {4, 1, false},
		"a client comes":             {4, 4, true},
		"more than it can answer of": {40, 40, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, g, d := leasing(t)
				used := netip.MustParseAddr("10.1.1.21")
				g.Remember(func(h *care.Held) { h.Description.Memory = 1 << 28 })
				d.Visiting = nil
				for addr := used; len(d.Visiting) < c.has; addr = addr.Next() {
					g.Remember(func(h *care.Held) {
						h.Addresses = append(h.Addresses, migration.Address{Prefix: netip.PrefixFrom(addr, 24), Home: "paris"})
					})
					d.Visiting = append(d.Visiting, netstate.Visiting{Addr: addr, Tunnel: d.Tunnel.Name})
				}
				place(a, d)
				b := busied{forgetful{silent: new(bool), dropped: new([]netip.Addr), uses: []netip.Addr{used}}, nil, new([]netip.Addr)}
				if c.comes {
					b.comes = map[netip.Addr]netip.Addr{d.Visiting[2].Addr: d.Visiting[1].Addr}
				}
				g.SpeakBy(b)
				begun := time.Now()
				_ = a.lookForUnneeded(t.Context(), g)
				if has := migration.Bare(g.Held().Addresses); len(has) != c.left {
					t.Errorf("it has %v", has)
				}
				if took := time.Since(begun); took > limits.GuestStep.For {
					t.Errorf("it was asked for %v", took)
				}
			})
		})
	}
}

// TestTellsOnWhoSendsForGood: a home which sends a guest's address for good to the host that the guest leaves, and
// which does not answer as nothing needs that any more, is told on, also by the next agent: no lease ends it there.
func TestTellsOnWhoSendsForGood(t *testing.T) {
	for until, told := range map[time.Time]bool{{}: true, clock.Now().Add(time.Hour): false} {
		a, _, d := leasing(t)
		place(a, &detour.Detour{ID: "m-00000002-oslo", Guest: d.Guest, Peer: "oslo", Leased: true, Until: until,
			Visiting: []netstate.Visiting{{Addr: netip.MustParseAddr("10.3.1.21"), Tunnel: "gwt-2"}}})
		a.records.Add(record.New("rome", migration.Plan{ID: "m-00000002", Guest: d.Guest}, time.Now()))
		plan := migration.Plan{ID: d.ID, Guest: d.Guest, To: "paris"}
		m := &outgoing{a: a, plan: plan, work: &sourceWork{}, rec: record.New("rome", plan, time.Now())}
		m.work.needed.Store(&detour.Needed{Lease: time.Hour})
		m.settleDetours(t.Context()) //nolint:errcheck // what of it is in the kernel is not the test's
		a.actors.Wait()
		if _, err := os.Stat(a.config.StatePath("ended", "m-00000002-oslo.json")); (err == nil) != told {
			t.Errorf("of one until %v: %v", until, err)
		}
	}
}
