package agent

import (
	"context"
	"net/http"
	"net/netip"
	"slices"
	"testing"
	"time"

	"godwit/agent/asking"
	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/guests"
	"godwit/agent/peer"
	"godwit/agent/record"
	"godwit/agent/statefile"
	"godwit/migration"
	"godwit/netstate"
	"godwit/netstate/tunnel"
)

// TestHomeOutlivesTheLease: of a guest that came home with an address of elsewhere, the lease ends that one; the one
// that it has at home stays for as long as something uses it.
func TestHomeOutlivesTheLease(t *testing.T) {
	home, led := netip.MustParseAddr("10.1.1.20"), netip.MustParseAddr("10.9.1.20")
	for name, uses := range map[string][]netip.Addr{"used": {home, led}, "used at home alone": {home}, "not used": nil, "used elsewhere alone": {led}} {
		a, g, d := leasing(t)
		f := forgetful{silent: new(bool), dropped: new([]netip.Addr), uses: uses}
		g.SpeakBy(f)
		becomes(g, care.Held{
			Description: config.Description{Name: g.Name(), Memory: 1 << 28, NICs: []config.NIC{{MAC: "52:54:00:00:01:0a"}, {MAC: "52:54:00:00:01:0b"}}}, Dir: a.guestDir(g.Name(), "2"),
			Addresses: []migration.Address{{Prefix: netip.MustParsePrefix("10.1.1.21/24"), Home: "rome"}, {Prefix: netip.PrefixFrom(home, 24), Home: "rome"}, {Prefix: netip.PrefixFrom(led, 24), Home: "paris"}},
		})
		d.Until = time.Now().Add(-time.Second)
		d.Visiting = []netstate.Visiting{{Addr: home}, {Addr: led, Tunnel: d.Tunnel.Name}}
		a.config.Network.Bridge = "no-such-bridge" // the kernel's part is told by its error
		place(a, d)
		err := a.lookAfter(t.Context(), *d)
		stays := slices.Contains(uses, home)
		if dropped := *f.dropped; slices.Contains(dropped, home) == stays || !slices.Contains(dropped, led) {
			t.Errorf("%s: the guest gave up %v (%v)", name, dropped, err)
		}
		var left []netip.Addr
		for _, d := range a.detours.List(g.Name()) {
			left = append(left, d.Addresses()...)
		}
		if want := map[bool][]netip.Addr{true: {home}}[stays]; !slices.Equal(left, want) {
			t.Errorf("%s: %v leads here, not %v (%v)", name, left, want, err)
		}
		if got := len(g.Held().Addresses); got != map[bool]int{true: 2, false: 1}[stays] {
			t.Errorf("%s: the guest has %v", name, g.Held().Addresses)
		}
	}
}

// besideOwn is a guest at rome that keeps own for good, and has old beside it.
type besideOwn struct {
	name                            string
	home, together, silent, unknown bool // its own one is at home here; both come by one detour; that one's other end does not answer; which is its own is not known
	until                           time.Time
	uses                            []netip.Addr
	stays                           bool // the old one
	still                           bool // it is led here still, though it is given up
}

func (c besideOwn) has(t *testing.T, own, old netip.Addr) (*Agent, *guests.Guest, forgetful, <-chan string) {
	t.Helper()
	a, g, d := leasing(t)
	a.config.Peers = []config.Neighbour{{Host: "paris", Site: "paris"}}
	asked := make(chan string, 3)
	a.links["paris"] = linked(t, "rome", "paris", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Path
		var refused error
		if c.silent {
			refused = &migration.Problem{Code: migration.CodeInternal, Text: "it does not"}
		}
		peer.Answer(w, nil, refused)
	}))
	f := forgetful{silent: new(bool), dropped: new([]netip.Addr), uses: c.uses}
	g.SpeakBy(f)
	addrs := []migration.Address{{Prefix: netip.PrefixFrom(own, 24), Home: "oslo", Handover: "m-00000001"}, {Prefix: netip.PrefixFrom(old, 24), Home: "paris"}}
	if c.unknown {
		addrs[0].Handover = ""
	}
	becomes(g, care.Held{
		Description: config.Description{Name: g.Name(), Memory: 1 << 28, NICs: []config.NIC{{MAC: "52:54:00:00:01:0a"}, {MAC: "52:54:00:00:01:0b"}}}, Dir: a.guestDir(g.Name(), "2"),
		Addresses: addrs,
	})
	a.config.Network.Bridge = "no-such-bridge" // the kernel's part is told by its error
	first := netstate.Visiting{Addr: own, Tunnel: d.Tunnel.Name}
	if c.home {
		first.Tunnel = ""
	}
	d.Until, d.Visiting = c.until, []netstate.Visiting{{Addr: old, Tunnel: d.Tunnel.Name}}
	if c.together {
		d.Visiting = append(d.Visiting, first)
	} else {
		place(a, &detour.Detour{ID: "m-00000002", Guest: g.Name(), Leased: true, Peer: "oslo", Visiting: []netstate.Visiting{first}, Tunnel: tunnel.Config{Name: "gwt-2", Dir: d.Tunnel.Dir}})
		a.records.Add(record.New("rome", migration.Plan{ID: "m-00000002", Guest: g.Name()}, time.Now()))
	}
	place(a, d)
	return a, g, f, asked
}

// TestOwnOutlivesTheOld: a guest that keeps its own address for good, wherever that is, has an older one beside it for
// as long as something needs that, or its lease lasts. It was led for good as well, and nothing ended it.
func TestOwnOutlivesTheOld(t *testing.T) {
	own, old := netip.MustParseAddr("10.2.1.20"), netip.MustParseAddr("10.1.1.20")
	over, lasts := time.Now().Add(-time.Second), time.Now().Add(time.Hour)
	for _, c := range []besideOwn{
		{name: "by ways of their own, and it is needed", uses: []netip.Addr{own, old}, stays: true},
		{name: "by ways of their own", uses: []netip.Addr{own}},
		{name: "nothing uses either"},
		{name: "it is not known which is old", unknown: true, stays: true},
		{name: "by one way", together: true, uses: []netip.Addr{own}, still: true},
		{name: "home, while it is needed", home: true, together: true, until: lasts, uses: []netip.Addr{own, old}, stays: true},
		{name: "home, as its lease ends", home: true, together: true, until: over, uses: []netip.Addr{own, old}},
		{name: "home, as its lease ends, and nobody answers", home: true, together: true, silent: true, until: over, uses: []netip.Addr{own, old}},
		{name: "home, by a way of its own", home: true, until: over, uses: []netip.Addr{old}},
		{name: "home, for good", home: true, together: true, uses: []netip.Addr{own}},
		{name: "home, for good, and nobody answers", home: true, together: true, silent: true, uses: []netip.Addr{own}},
	} {
		a, g, f, asked := c.has(t, own, old)
		for range 2 { // the second time nothing is left to do
			for _, d := range a.detours.List(g.Name()) {
				a.lookAfter(t.Context(), d) //nolint:errcheck // what of it is in the kernel is not the test's
			}
			*g.Asks() = asking.Asking{}
		}
		want := []netip.Addr{own}
		if c.stays || c.still {
			want = []netip.Addr{old, own}
		}
		if asks := a.leased(g); c.still && len(asks) > 0 {
			t.Errorf("%s: it is asked on who needs %v", c.name, asks)
		}
		led := a.visiting(g.Name())
		if slices.SortFunc(led, netip.Addr.Compare); !slices.Equal(led, want) {
			t.Errorf("%s: %v lead here, not %v", c.name, led, want)
		}
		gone := !c.stays
		if has := len(g.Held().Addresses); has != map[bool]int{true: 1, false: 2}[gone] || slices.Contains(*f.dropped, own) || slices.Contains(*f.dropped, old) != gone {
			t.Errorf("%s: it has %d addresses, and gave up %v", c.name, has, *f.dropped)
		}
		if told := len(asked) > 0; told != (gone && (c.home || !c.together)) {
			t.Errorf("%s: its other end was told: %v", c.name, told)
		}
	}
}

// TestHomeHearsOfTheOld: the home of an address that was given up beside the guest's own one, which came by the same
// way, sends both on, until it is told that this ends, as the guest moves on and has its own one sent to it there
// directly. It sent the old one there for good.
func TestHomeHearsOfTheOld(t *testing.T) {
	own, old := netip.MustParseAddr("10.2.1.20"), netip.MustParseAddr("10.1.1.20")
	a, g, _, _ := besideOwn{together: true, uses: []netip.Addr{own}}.has(t, own, old)
	for _, d := range a.detours.List(g.Name()) {
		a.lookAfter(t.Context(), d) //nolint:errcheck // what of it is in the kernel is not the test's
	}
	ctx, end := context.WithCancel(t.Context())
	a.ctx = ctx
	plan := migration.Plan{ID: "m-00000009", Guest: g.Name(), From: "rome", To: "oslo", Network: "tunnel", Held: g.Held().Addresses}
	m := &outgoing{a: a, plan: plan, guest: g, work: &sourceWork{}, rec: record.New("rome", plan, time.Now())}
	m.work.needed.Store(&detour.Needed{Leased: []netip.Addr{own}, Moved: []netip.Addr{own}})
	m.settleDetours(t.Context()) //nolint:errcheck // as above
	end()
	a.actors.Wait()
	files, err := statefile.Files(a.config.StatePath("ended"))
	if left := a.detours.List(g.Name()); len(left) > 0 || len(files) != 1 || err != nil {
		t.Errorf("left %v; its home is to be told of %v, %v", left, files, err)
	}
}

// TestLeaseGoesWithTheOld: the lease of an old address goes with it, and leaves none to the guest's own at home that
// came by the same way: an agent that does not know which is its own, as one of an older release, would end that where
// nothing uses it at that moment. One at home that is old, too, has it on.
func TestLeaseGoesWithTheOld(t *testing.T) {
	own, old := netip.MustParseAddr("10.2.1.20"), netip.MustParseAddr("10.1.1.20")
	for _, c := range []besideOwn{
		{name: "as it ends", until: time.Now().Add(-time.Second), uses: []netip.Addr{own, old}},
		{name: "as nothing needs it", until: time.Now().Add(time.Hour), uses: []netip.Addr{own}},
		{name: "both are old", until: time.Now().Add(-time.Second), unknown: true, uses: []netip.Addr{own, old}, stays: true},
	} {
		c.home, c.together = true, true
		a, g, _, _ := c.has(t, own, old)
		a.lookAfter(t.Context(), *placed(a, "m-00000001")) //nolint:errcheck // what of it is in the kernel is not the test's
		d := placed(a, "m-00000001")
		if d == nil || len(d.Visiting) != 1 || d.Visiting[0].Addr != own || !d.Leased || d.Until.IsZero() == c.stays {
			t.Fatalf("%s: %+v", c.name, d)
		}
		f := forgetful{silent: new(bool), dropped: new([]netip.Addr)}
		g.SpeakBy(f)
		g.Remember(func(h *care.Held) { h.Addresses[0].Handover = "" }) // no agent knows any more which is its own
		*g.Asks() = asking.Asking{}
		a.lookAfter(t.Context(), *d) //nolint:errcheck // as above
		if ended := slices.Contains(*f.dropped, own); ended != c.stays {
			t.Errorf("%s: it gave up %v", c.name, *f.dropped)
		}
	}
}

// TestOldHomeIsAway: the other end of an old address beside the guest's own at home that is for good, and is not
// needed, does not answer, or is not in the configuration any more: the guest gives it up once, and that end is told
// on. It was asked again and again, or it was led here for ever.
func TestOldHomeIsAway(t *testing.T) {
	own, old := netip.MustParseAddr("10.2.1.20"), netip.MustParseAddr("10.1.1.20")
	for _, named := range []bool{true, false} {
		a, g, f, asked := besideOwn{home: true, together: true, silent: true, uses: []netip.Addr{own}}.has(t, own, old)
		ctx, end := context.WithCancel(t.Context())
		if a.ctx = ctx; !named {
			a.config.Peers, a.links = nil, nil
		}
		for range 3 {
			a.lookAfter(t.Context(), *placed(a, "m-00000001")) //nolint:errcheck // what of it is in the kernel is not the test's
			*g.Asks() = asking.Asking{}
		}
		end()
		a.actors.Wait()
		d := placed(a, "m-00000001")
		if d == nil || !d.NeedsNoTunnel() || !slices.Equal(*f.dropped, []netip.Addr{old}) || len(asked) > 1 {
			t.Errorf("named %v: %+v; it gave up %v; its other end was asked %d times", named, d, *f.dropped, len(asked))
		}
		if files, err := statefile.Files(a.config.StatePath("ended")); len(files) != 1 || err != nil {
			t.Errorf("named %v: its other end is to be told of %v, %v", named, files, err)
		}
	}
}

// TestToldBesideWhatIsAtHome: the other end of a detour of which nothing but what is at home is left here is told on
// that it has ended; that of one which leads something is not.
func TestToldBesideWhatIsAtHome(t *testing.T) {
	own, old := netip.MustParseAddr("10.2.1.20"), netip.MustParseAddr("10.1.1.20")
	a, _, _, asked := besideOwn{home: true, together: true}.has(t, own, old)
	e := ending{Detour: "m-00000001", Peer: "paris"}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	a.ctx = ctx
	told := make(chan struct{})
	go func() { defer close(told); a.tellEnding(e, time.Millisecond) }()
	d := placed(a, e.Detour)
	if d.Visiting = slices.DeleteFunc(d.Visiting, func(v netstate.Visiting) bool { return v.Addr == old }); !d.NeedsNoTunnel() || len(asked) > 0 {
		t.Fatalf("%+v; asked %d times", d, len(asked))
	}
	a.detours.Change(d.Guest, func(all map[string]*detour.Detour) { *all[d.ID] = *d }) //nolint:errcheck // as above
	<-told
	if path := <-asked; path != "/v1/detours/m-00000001/end" {
		t.Errorf("asked for %s", path)
	}
}

// TestTunnelEndsBesideWhatIsAtHome: the end of the tunnel of an old address is told of, once, and written down as it
// ends, also where the guest's own one, which is at home, came by the same detour and lives on.
func TestTunnelEndsBesideWhatIsAtHome(t *testing.T) {
	own, old := netip.MustParseAddr("10.2.1.20"), netip.MustParseAddr("10.1.1.20")
	for _, until := range []time.Time{{}, time.Now().Add(-time.Second)} {
		a, g, _, _ := besideOwn{home: true, together: true, until: until, uses: []netip.Addr{own}}.has(t, own, old)
		now, end := context.WithCancel(t.Context())
		end()
		ended := func() (times int) {
			for _, e := range a.records.Find("m-00000001").Watch(now, 0).Events {
				if e.Name == migration.LeaseEnded {
					times++
				}
			}
			return times
		}
		a.lookAfter(t.Context(), *placed(a, "m-00000001")) //nolint:errcheck // what of it is in the kernel is not the test's
		rep, _ := a.records.Report("m-00000001")
		if times := ended(); times != 1 || rep.TunnelDown == 0 {
			t.Fatalf("until %v: its end was told of %d times, and took place at %d", until, times, rep.TunnelDown)
		}
		a.endGuestDetours(t.Context(), g, true, false) //nolint:errcheck // as above
		again, _ := a.records.Report("m-00000001")
		if times := ended(); placed(a, "m-00000001") != nil || times != 1 || again.TunnelDown != rep.TunnelDown {
			t.Errorf("until %v: its end was told of %d times, and took place at %d", until, times, again.TunnelDown)
		}
	}
}
