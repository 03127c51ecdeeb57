package agent

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"godwit/agent/agenttest"
	"godwit/agent/asking"
	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/ends"
	"godwit/agent/guests"
	"godwit/agent/limits"
	"godwit/agent/record"
	"godwit/internal/clock"
	"godwit/internal/need"
	"godwit/migration"
	"godwit/netstate"
	"godwit/netstate/tunnel"
	"godwit/vm/guest"
)

// deaf is the channel of a guest that answers nothing.
type deaf struct{ guest.Channel }

func (deaf) DropAddress(ctx context.Context, _ ...netip.Addr) error {
	<-ctx.Done()
	return ctx.Err()
}

func (deaf) Users(ctx context.Context, _ ...netip.Addr) (guest.Users, error) {
	<-ctx.Done()
	return guest.Users{}, ctx.Err()
}

func (deaf) Done() <-chan struct{} { return nil }

// leasing is an agent with one detour of guest web, which is here.
func leasing(t *testing.T) (*Agent, *guests.Guest, *detour.Detour) {
	t.Helper()
	need.Root(t)
	a := bareAgent(t, &config.Config{Host: "rome"})
	a.ctx, a.records, a.incoming = t.Context(), noRecords(a.config), map[string]*incoming{}
	var err error
	if a.detours, err = detour.Load(a.config.StatePath("detours.json"), a.config.Network); err != nil {
		t.Fatal(err)
	}
	g := askedBy(deaf{}, guests.New(care.Held{Description: config.Description{Name: "leased"}}, nil))
	underCare(t, a.guests, g.Name(), g)
	d := &detour.Detour{
		ID: "m-00000001", Guest: g.Name(), Peer: "paris", Leased: true, Until: time.Now().Add(time.Hour),
		Visiting: []netstate.Visiting{{Addr: netip.MustParseAddr("10.1.1.20")}}, Tunnel: tunnel.Config{Name: "gwt-00000001", Dir: ends.Dir(a.config)},
	}
	place(a, d)
	a.records.Add(record.New("rome", migration.Plan{ID: d.ID, Guest: g.Name()}, time.Now()))
	return a, g, d
}

// TestDeafGuestDoesNotStopTheLeases: the leases of a guest that does not answer end
// all the same, after a limit.
func TestDeafGuestDoesNotStopTheLeases(t *testing.T) {
	a, g, _ := leasing(t)
	before := limits.GuestStep
	limits.GuestStep.For = 20 * time.Millisecond
	defer func() { limits.GuestStep = before }()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // the test's own end
	defer cancel()
	err := a.endGuestDetours(ctx, g, true, true)
	if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, %v", ctx.Err(), err)
	}
	if left := a.detours.List(""); len(left) > 0 {
		t.Errorf("left: %+v", left)
	}
}

// TestDeafGuestIsAskedSeldom: one that does not answer costs the leases of others a limit now
// and then, not in each round, and keeps its tunnel meanwhile.
func TestDeafGuestIsAskedSeldom(t *testing.T) {
	a, g, d := leasing(t)
	before := limits.AskGuest
	limits.AskGuest.For = 20 * time.Millisecond
	defer func() { limits.AskGuest = before }()
	if err := a.lookAfter(t.Context(), *d); err == nil {
		t.Fatal("a guest that does not answer has answered")
	}
	limits.AskGuest.For = time.Minute // or the test does not end
	for range 3 {
		if err := a.lookAfter(t.Context(), *d); err != nil {
			t.Fatal(err)
		}
	}
	if left := a.detours.List(g.Name()); len(left) != 1 {
		t.Errorf("left: %+v", left)
	}
	*g.Asks() = asking.Asking{}
	limits.AskGuest.For = 20 * time.Millisecond
	if err := a.lookAfter(t.Context(), *d); err == nil {
		t.Error("it is not asked again")
	}
}

// idle is the channel of a guest that nobody uses by its old addresses.
type idle struct{ guest.Channel }

func (idle) Users(context.Context, ...netip.Addr) (guest.Users, error) { return guest.Users{}, nil }
func (idle) DropAddress(context.Context, ...netip.Addr) error          { return nil }
func (idle) Done() <-chan struct{}                                     { return nil }

// TestDeafGuestHoldsUpNoOther: while a guest is asked that does not answer, others' leases end.
func TestDeafGuestHoldsUpNoOther(t *testing.T) {
	a, first, deafs := leasing(t)
	before := limits.AskGuest
	limits.AskGuest.For = time.Minute // or longer than the test
	defer func() { limits.AskGuest = before }()
	second := askedBy(idle{}, guests.New(care.Held{Description: config.Description{Name: "second"}}, nil))
	underCare(t, a.guests, second.Name(), second)
	others := *deafs
	others.ID, others.Guest, others.Tunnel.Name = "m-00000002", second.Name(), "gwt-00000002"
	others.Visiting = []netstate.Visiting{{Addr: netip.MustParseAddr("10.1.1.21")}}
	place(a, &others)
	a.records.Add(record.New("rome", migration.Plan{ID: others.ID, Guest: second.Name()}, time.Now()))
	ctx, cancel := context.WithCancel(t.Context())
	var under looks
	defer under.all.Wait()
	defer cancel()
	for end := time.Now().Add(10 * time.Second); len(a.detours.List(second.Name())) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the second guest's lease has not ended")
		}
		a.lookAfterAll(ctx, &under)
	}
	if len(a.detours.List(first.Name())) != 1 || first.Asks().IsDeaf() {
		t.Error("the first guest has answered, or was given up")
	}
}

// TestEndedDetourLeavesNothing: the host of a guest says that a detour has ended, and is gone
// before all of it is: it will not say so again.
func TestEndedDetourLeavesNothing(t *testing.T) {
	a, _, d := leasing(t)
	if err := os.MkdirAll(ends.Dir(a.config), 0o700); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(ends.Dir(a.config), d.Tunnel.Name+".sock") // of a tunnel whose process is gone
	if err := os.WriteFile(left, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := (&http.Request{
		TLS:  &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{DNSNames: []string{"paris"}}}},
		Body: io.NopCloser(bytes.NewReader([]byte("{}"))),
	}).WithContext(ctx)
	r.SetPathValue("id", d.ID)
	if _, err := a.peerEndDetour(r); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the tunnel is there still: %v", err)
	}
}

// TestTunnelDownAfterRestart: when a tunnel went is known to the history, also where its migration ended under an
// earlier agent, and the clock was set on since.
func TestTunnelDownAfterRestart(t *testing.T) {
	for name, again := range map[string]bool{"the same agent": false, "a later one": true} {
		a, _, d := leasing(t)
		if again {
			a.records, d.Leased = noRecords(a.config), false // nobody hears of the end of a lease here
		} else {
			a.records.Find(d.ID).Edit(func(r *record.Report) { r.Ended, r.TunnelUp = 5, 3 })
		}
		booted := time.Now().Add(-clock.SinceBoot() - 3*time.Hour).UnixNano()
		written := record.Report{ID: d.ID, TunnelUp: 3, Ended: 5, Boot: clock.Boot(), Booted: booted}
		if err := a.records.Write(d.ID+".json", func() record.Report { return written }); err != nil {
			t.Fatal(err)
		}
		if err := a.endDetour(t.Context(), *d); err != nil {
			t.Error(err)
		}
		rep, ok := a.records.Report(d.ID)
		if off := time.Until(time.Unix(0, rep.TunnelDown)) + 3*time.Hour; again && off.Abs() > time.Minute {
			t.Errorf("its tunnel went %v later than it did, by the clock of its migration", off)
		}
		if kept, known, err := a.records.History(d.ID); !ok || err != nil || !known || rep.TunnelDown == 0 || kept.TunnelDown != rep.TunnelDown || kept.TunnelUp != 3 {
			t.Errorf("%s: its tunnel went at %d, in the history at %d, %v", name, rep.TunnelDown, kept.TunnelDown, err)
		}
	}
}

// TestOrphan: a detour that no migration knows of is leased where a guest may be reached by it, and
// ends elsewhere; one whose journal was left alone stays as it is.
func TestOrphan(t *testing.T) {
	away := []netstate.Away{{Addr: netip.MustParseAddr("10.1.1.20"), Tap: "gwt1a"}}
	visiting := []netstate.Visiting{{Addr: netip.MustParseAddr("10.1.1.20")}}
	for _, c := range []struct {
		name         string
		here         bool
		away         []netstate.Away
		visiting     []netstate.Visiting
		known        func(*Agent)
		left, leased bool
	}{
		{"it visits", true, nil, visiting, nil, true, true},
		{"it has no other address", true, nil, visiting, func(a *Agent) { found(a.guests, "leased").Remember(func(h *care.Held) { h.Addresses = nil }) }, true, true},
		{"it never left", true, away, nil, nil, false, false},
		{"it never came", false, nil, visiting, nil, false, false},
		{"it may have left", false, away, nil, nil, true, true},
		{"its migration comes", true, nil, visiting, func(a *Agent) { a.incoming["m-00000001"] = &incoming{} }, true, false},
		{"its migration goes", true, away, nil, func(a *Agent) { a.outgoing = map[string]*outgoing{"m-00000001": {}} }, true, false},
		{"its journal was left alone", true, away, nil, func(a *Agent) { a.unread = map[string]string{"m-00000001": "why"} }, true, false},
		{"its guest is waited for", false, nil, visiting, func(a *Agent) {
			a.guests.ExpectAgain(guests.New(care.Held{Description: config.Description{Name: "leased"}}, nil))
		}, true, false},
	} {
		a, g, d := leasing(t)
		if !c.here {
			leavesCare(t, a.guests, g.Name())
		}
		g.Remember(func(h *care.Held) {
			h.Addresses = []migration.Address{{Prefix: netip.MustParsePrefix("10.2.1.20/24"), Home: "rome"}}
		})
		if c.known != nil {
			c.known(a)
		}
		d.ID, d.Leased, d.Until, d.Away, d.Visiting, d.Taps = "m-00000001-oslo", false, time.Time{}, slices.Clone(c.away), c.visiting, []string{"gwt1a"}
		a.detours = detour.New(a.config.StatePath("detours.json"), a.config.Network, map[string]*detour.Detour{d.ID: d})
		a.lookAfter(t.Context(), *d) //nolint:errcheck // what of it is in the kernel is not the test's
		left, ok := a.detours.Get(d.ID)
		if ok != c.left || left.Leased != c.leased || left.Leased && left.Until.IsZero() != (len(g.Held().Addresses) == 0) {
			t.Errorf("%s: %v, %+v", c.name, ok, left)
		}
		if ok && c.leased && len(left.Away) > 0 && !left.Away[0].Active {
			t.Errorf("%s: nothing leads to it", c.name)
		}
		if ok && c.leased && len(left.Away) > 0 && (len(left.Taps) > 0 || left.Away[0].Tap != "") {
			t.Errorf("%s: it has taps still, which the next guest gets", c.name)
		}
	}
}

// TestWayHomeOfAGuestThatWentOn: packets of an address that came here with its guest, and goes on
// with it, pass through here for as long as they are led on, and the lease lasts.
func TestWayHomeOfAGuestThatWentOn(t *testing.T) {
	a, g, d := leasing(t)
	leavesCare(t, a.guests, g.Name()) // it has gone on
	on := &detour.Detour{ID: "m-00000002", Guest: g.Name(), Peer: "oslo", Leased: true, Until: d.Until, Away: []netstate.Away{{Addr: d.Visiting[0].Addr, Active: true}}}
	place(a, on, d)
	there := func() bool { _, ok := a.detours.Get(d.ID); return ok }
	if _ = a.lookAfter(t.Context(), *d); !there() {
		t.Error("its way home was ended while it is led on")
	}
	d.Until = time.Now().Add(-time.Minute)
	if _ = a.lookAfter(t.Context(), *d); there() {
		t.Error("its lease has ended, and it is there still")
	}
	d.Until = time.Now().Add(time.Hour)
	place(a, d)
	displace(a, on.ID)
	if _ = a.lookAfter(t.Context(), *d); there() {
		t.Error("it is not led on, and its way home is there still")
	}
}

// slow is the channel of a guest that takes its time to give an address up.
type slow struct {
	guest.Channel
	asked, then chan struct{}
}

func (s slow) DropAddress(context.Context, ...netip.Addr) error {
	close(s.asked)
	<-s.then
	return nil
}

func (slow) Done() <-chan struct{} { return nil }

// TestLeaseEndsAsTheGuestIsToMove: a migration that is asked for while the end of a lease takes
// an address from the guest waits for that, and goes without it.
func TestLeaseEndsAsTheGuestIsToMove(t *testing.T) {
	a, g, d := leasing(t)
	a.config.Peers = []config.Neighbour{{Host: "oslo", Site: "oslo"}}
	lent := migration.Address{Prefix: netip.PrefixFrom(d.Visiting[0].Addr, 24), Home: "paris"}
	own := migration.Address{Prefix: netip.MustParsePrefix("10.2.1.20/24"), Home: "rome"}
	g.Remember(func(h *care.Held) { h.Addresses = []migration.Address{own, lent} })
	c := slow{asked: make(chan struct{}), then: make(chan struct{})}
	g.SpeakBy(c)
	d.Until, d.Visiting[0].Tunnel = time.Now().Add(-time.Minute), d.Tunnel.Name
	ended, moves := make(chan error, 1), make(chan *outgoing, 1)
	go func() { ended <- a.lookAfter(t.Context(), *d) }()
	<-c.asked
	go func() {
		m, err := a.draft(migration.Request{Guest: g.Name(), To: "oslo"})
		if err != nil {
			t.Error(err)
		}
		moves <- m
	}()
	select {
	case m := <-moves:
		t.Fatalf("it moves with %v, one of which is being taken away", m.plan.Held)
	case <-time.After(100 * time.Millisecond):
	}
	close(c.then)
	<-ended
	if m := <-moves; m == nil || len(m.plan.Held) != 1 || m.plan.Held[0] != own {
		t.Errorf("%+v", m)
	}
}

// TestLeasesOfAGuestThatMigrates: who ends all leases at once does not take from a guest what it is taking along just now.
func TestLeasesOfAGuestThatMigrates(t *testing.T) {
	a, g, d := leasing(t)
	before := limits.GuestStep
	limits.GuestStep.For = 20 * time.Millisecond
	defer func() { limits.GuestStep = before }()
	lent := migration.Address{Prefix: netip.PrefixFrom(d.Visiting[0].Addr, 24), Home: "paris"}
	g.Remember(func(h *care.Held) { h.Addresses = []migration.Address{lent} })
	taken(t, g, "m-00000002")
	agenttest.Refused(t, "it migrates", a.endDetours(t.Context()), migration.CodeBusy, "leased", "m-00000002")
	if len(g.Held().Addresses) != 1 || placed(a, d.ID) == nil {
		t.Errorf("it has %v left, and %+v", g.Held().Addresses, placed(a, d.ID))
	}
	g.Drop("m-00000002")
	a.endDetours(t.Context()) //nolint:errcheck // it does not answer
	if len(g.Held().Addresses) != 0 || placed(a, d.ID) != nil {
		t.Errorf("when that is over: it has %v, and %+v", g.Held().Addresses, placed(a, d.ID))
	}
}

// TestWayThatWasJustTaken: a home that saw a tunnel stand for long and lead nothing does not end it when the guest's
// host has asked it to go since: that is told that its packets come by it.
func TestWayThatWasJustTaken(t *testing.T) {
	a, g, d := leasing(t)
	leavesCare(t, a.guests, g.Name())
	d.Leased, d.Until, d.Visiting, d.Up = false, time.Time{}, nil, time.Now().Add(-time.Minute)
	place(a, d)
	seen, now, _ := a.detours.Look(d.ID)
	d.Away, d.Leased, d.Until = []netstate.Away{{Addr: netip.MustParseAddr("10.2.1.20"), Active: true}}, true, time.Now().Add(time.Hour)
	place(a, d)
	a.lookFromHome(t.Context(), seen, now) //nolint:errcheck // what of it is in the kernel is not the test's
	if placed(a, d.ID) == nil {
		t.Error("it was ended")
	}
	d.Away, d.Leased, d.Until = nil, false, time.Time{}
	place(a, d)
	if a.lookFromHome(t.Context(), seen, now); placed(a, d.ID) != nil { //nolint:errcheck // as above
		t.Error("one that leads nothing still was not ended")
	}
}

// TestEndedGuestHoldsUpNoOther: while the host is asked to which the way of an ended guest leads, and does not answer,
// others are looked after.
func TestEndedGuestHoldsUpNoOther(t *testing.T) {
	a, g, d := leasing(t)
	before := limits.EndDetour
	limits.EndDetour.For = time.Minute // or longer than the test
	defer func() { limits.EndDetour = before }()
	ended, asked := make(chan struct{}), make(chan struct{})
	close(ended)
	g.RunsIn(gone{done: ended})
	g.SpeakBy(nil)
	a.config.Peers = []config.Neighbour{{Host: "paris", Site: "paris"}}
	a.links["paris"] = linked(t, "rome", "paris", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
	}))
	ctx, cancel := context.WithCancel(t.Context())
	var under looks
	defer under.all.Wait()
	defer cancel()
	looked := make(chan struct{})
	go func() { defer close(looked); a.forgetEnded(ctx, &under) }()
	<-asked
	select {
	case <-looked:
	case <-time.After(10 * time.Second):
		t.Error("the look at the others waits for a host that does not answer")
	}
	if _, err := a.guests.Find(g.Name()); err == nil || placed(a, d.ID) == nil {
		t.Error("the guest is here still, or its way has ended before the other host was told")
	}
}
