package agent

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/agent/asking"
	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/guests"
	"godwit/agent/limits"
	"godwit/agent/record"
	"godwit/agent/talk"
	"godwit/migration"
	"godwit/vm/guest"
)

// forgetful is the channel of a guest that is silent now and then, and of what it was asked to give up.
type forgetful struct {
	guest.Channel
	silent  *bool
	has     guest.Info
	dropped *[]netip.Addr
	uses    []netip.Addr // by TCP
}

func (f forgetful) answers(ctx context.Context) error {
	if *f.silent {
		<-ctx.Done()
	}
	return ctx.Err()
}

func (f forgetful) Info(ctx context.Context) (guest.Info, error) { return f.has, f.answers(ctx) }

func (f forgetful) Users(ctx context.Context, addrs ...netip.Addr) (guest.Users, error) {
	var users guest.Users
	for _, addr := range addrs {
		if slices.Contains(f.uses, addr) {
			users.TCP++
		}
	}
	return users, f.answers(ctx)
}

func (f forgetful) DropAddress(ctx context.Context, addrs ...netip.Addr) error {
	if err := f.answers(ctx); err != nil {
		return err
	}
	*f.dropped = append(*f.dropped, addrs...)
	return nil
}

func (forgetful) Done() <-chan struct{} { return nil }

// lapsed is a guest at rome that was silent when the lease of 10.1.1.20 ended.
func lapsed(t *testing.T) (*Agent, *guests.Guest, forgetful) {
	t.Helper()
	a, g, d := leasing(t)
	for _, l := range []*limits.Limit{&limits.GuestStep, &limits.AskGuest} {
		before := *l
		l.For = 20 * time.Millisecond
		t.Cleanup(func() { *l = before })
	}
	f := forgetful{silent: new(bool), dropped: new([]netip.Addr)}
	*f.silent = true
	g.SpeakBy(f)
	becomes(g, care.Held{
		Description: config.Description{Name: g.Name(), Memory: 1 << 28, NICs: []config.NIC{{MAC: "52:54:00:00:01:0a"}, {MAC: "52:54:00:00:01:0b"}}}, Dir: a.guestDir(g.Name(), "2"),
		Addresses: []migration.Address{{Prefix: netip.MustParsePrefix("10.2.1.20/24"), Home: "rome"}, {Prefix: netip.MustParsePrefix("10.1.1.20/24"), Home: "paris"}},
	})
	d.Until, d.Visiting[0].Tunnel = time.Now().Add(-time.Second), d.Tunnel.Name
	if err := a.lookAfter(t.Context(), *d); err == nil {
		t.Fatal("a guest that does not answer gave an address up")
	}
	if left := a.detours.List(""); len(left) > 0 || len(g.Held().Addresses) != 1 {
		t.Fatalf("its lease has ended: %+v, %v", left, g.Held().Addresses)
	}
	return a, g, f
}

// onDisk is what an agent that is started now knows of its only guest.
func onDisk(t *testing.T, a *Agent) care.Held {
	t.Helper()
	all, errs := a.guests.Remembered()
	if len(errs) > 0 || len(all) != 1 {
		t.Fatalf("%+v, %v", all, errs)
	}
	return all[0]
}

// TestLeaseEndsWhileTheGuestIsSilent: it is asked again for the address until it gives it up, also
// by a later agent, seldom while it is silent, and not while it migrates.
func TestLeaseEndsWhileTheGuestIsSilent(t *testing.T) {
	a, g, f := lapsed(t)
	want := []netip.Addr{netip.MustParseAddr("10.1.1.20")}
	if got := onDisk(t, a).ToDrop; !slices.Equal(got, want) {
		t.Fatalf("to be given up, on the disk: %v", got)
	}
	a.dropLater(t.Context())
	if *f.silent = false; !g.Asks().IsDeaf() {
		t.Error("it is asked in each round")
	}
	a.dropLater(t.Context())
	*g.Asks() = asking.Asking{}
	taken(t, g, "m-00000002")
	a.dropLater(t.Context())
	g.Drop("m-00000002")
	if len(*f.dropped) > 0 {
		t.Fatalf("asked too soon, or while it migrates: %v", *f.dropped)
	}
	for range 2 {
		a.dropLater(t.Context())
	}
	if !slices.Equal(*f.dropped, want) || len(onDisk(t, a).ToDrop) > 0 {
		t.Errorf("given up: %v; left %v", *f.dropped, onDisk(t, a).ToDrop)
	}
}

// TestDropsBeforeItMoves: a guest that answers when it is to move gives up first what it did not before;
// what it keeps is on the list of the host that it comes to, and none of its own is.
func TestDropsBeforeItMoves(t *testing.T) {
	a, g, f := lapsed(t)
	plan := migration.Plan{ID: "m-00000002", Guest: g.Name(), From: "rome", To: "paris", FromSite: "rome", ToSite: "paris", Network: "tunnel", Held: g.Held().Addresses}
	check := func() *outgoing {
		m := &outgoing{a: a, guest: g, plan: plan, work: &sourceWork{}, rec: record.New("rome", plan, time.Now())}
		if err := m.checkGuest(t.Context()); err != nil {
			t.Fatal(err)
		}
		return m
	}
	check() // it keeps its address, and is silent
	p := talk.Preparation{Plan: plan, ToDrop: g.Held().ToDrop}
	if got := (&incoming{a: a, plan: plan, work: &destinationWork{preparation: p}}).expected().ToDrop; !slices.Equal(got, p.ToDrop) || len(got) != 1 {
		t.Errorf("on the list at the destination: %v", got)
	}
	p.Plan.Next = []migration.Address{{Prefix: netip.MustParsePrefix("10.1.1.20/24")}}
	if got := (&incoming{a: a, plan: plan, work: &destinationWork{preparation: p}}).expected().ToDrop; len(got) > 0 {
		t.Errorf("its next address is on the list: %v", got)
	}
	*f.silent = false
	m := check()
	if len(*f.dropped) != 1 || len(g.Held().ToDrop) > 0 {
		t.Errorf("given up: %v; left %v", *f.dropped, g.Held().ToDrop)
	}
	if notes := strings.Join(m.rec.Snapshot().Notes, " "); strings.Contains(notes, "10.1.1.20") {
		t.Error(notes)
	}
}

// TestToDropIsNobodysNext: others get nothing of this subnet that a guest may still have.
func TestToDropIsNobodysNext(t *testing.T) {
	a := between(t)
	own, lent := netip.MustParseAddr("10.2.1.21"), netip.MustParseAddr("10.1.1.20")
	underCare(t, a.guests, "web", guests.New(care.Held{Description: config.Description{Name: "web"}, ToDrop: []netip.Addr{own, lent}}, nil))
	refusedBy(t, "it has not given it up", a.book.Promise(own, "db"), "guest web of this host has it")
	refusedBy(t, "another site's", a.book.Promise(lent, "db"), "")
}

// letsGoOf is a guest that is let go of while it gives an address up.
type letsGoOf struct {
	forgetful
	leave func() error
}

func (l letsGoOf) DropAddress(context.Context, ...netip.Addr) error { return l.leave() }

// TestForgottenWhileItGivesUp: a guest that a person forgets while it is asked for an address is not under care again
// when it has answered: nobody would look after it, and its file bring it back with the next agent.
func TestForgottenWhileItGivesUp(t *testing.T) {
	a, g, f := lapsed(t)
	*f.silent = false
	g.SpeakBy(letsGoOf{f, func() error { return a.guests.Forget(g) }})
	a.dropLater(t.Context())
	if len(g.Held().ToDrop) > 0 {
		t.Fatalf("it was not asked: %v", g.Held().ToDrop)
	}
	if all, errs := a.guests.Remembered(); len(a.guests.All())+len(all)+len(errs) > 0 {
		t.Errorf("it is back: %v, %v, %v", a.guests.All(), all, errs)
	}
}
