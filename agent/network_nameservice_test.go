package agent

import (
	"context"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/guests"
	"godwit/agent/nameserver"
	"godwit/agent/nameserver/nametest"
	"godwit/agent/record"
	"godwit/agent/statefile"
	"godwit/migration"
	"godwit/vm/guest"
)

// TestTellNames: no server, or an address that is kept: nothing is told. What is
// heard after a migration's end is in the history all the same.
func TestTellNames(t *testing.T) {
	a := bareAgent(t, &config.Config{})
	if a.tellNames(migration.Plan{}, nil) != nil {
		t.Error("without a name server, something is told")
	}
	a.config.DNS = &nameserver.Config{}
	if a.tellNames(migration.Plan{Network: "tunnel"}, nil) != nil {
		t.Error("the address is kept, and something is told")
	}
	rec := record.New("paris", migration.Plan{ID: "m-00000001"}, time.Now())
	a.records.Add(rec)
	rec.End(migration.Completed, nil, time.Now())
	path := a.config.StatePath("history", "m-00000001-destination.json")
	if err := statefile.Write(path, rec.Snapshot()); err != nil {
		t.Fatal(err)
	}
	a.remark("m-00000001", rec, "late")
	var rep record.Report
	if err := statefile.Read(path, &rep); err != nil || len(rep.Notes) != 1 || len(rec.Snapshot().Notes) != 1 {
		t.Errorf("notes in the history %v, in memory %v, %v", rep.Notes, rec.Snapshot().Notes, err)
	}
}

// TestNamesBehindNAT: the name of a guest behind a 1:1 NAT has what clients see in its addresses' place, in each family.
func TestNamesBehindNAT(t *testing.T) {
	server, taken := nametest.Server(t, 0)
	a := bareAgent(t, &config.Config{DNS: &server})
	a.ctx = t.Context()
	next := []migration.Address{
		{Prefix: netip.MustParsePrefix("10.2.1.10/24"), Public: netip.MustParseAddr("203.0.113.10")},
		{Prefix: netip.MustParsePrefix("fd00:2:1::10/64"), Public: netip.MustParseAddr("2001:db8::10")},
		{Prefix: netip.MustParsePrefix("fd00:3:1::10/64")},
	}
	underCare(t, a.guests, "web", guests.New(care.Held{Addresses: next}, nil))
	plan := migration.Plan{ID: "m-00000001", Guest: "web", Next: next}
	a.tellNames(plan, record.New("paris", plan, time.Now()))
	a.actors.Wait()
	want := []string{"web.example.test. 30 IN A 203.0.113.10", "web.example.test. 30 IN AAAA 2001:db8::10", "web.example.test. 30 IN AAAA fd00:3:1::10"}
	if got := taken(); !slices.Equal(got, want) {
		t.Errorf("the name server has %q, want %q", got, want)
	}
}

// TestNamesNotTaken: a move's end waits for what comes of the first try, and for none after it: that the name server
// could not be told is in its report then, and that it was told at last comes into the history.
func TestNamesNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := bareAgent(t, &config.Config{DNS: &nameserver.Config{Key: nameserver.Key{File: filepath.Join(t.TempDir(), "none")}}})
		ctx, cancel := context.WithCancel(t.Context())
		a.ctx = ctx
		here := migration.Address{Prefix: netip.MustParsePrefix("10.2.1.10/24")}
		underCare(t, a.guests, "web", guests.New(care.Held{Description: config.Description{Name: "web"}, Addresses: []migration.Address{here}}, nil))
		plan := migration.Plan{ID: "m-00000001", Guest: "web", Next: []migration.Address{here}}
		rec := record.New("paris", plan, time.Now())
		begun := time.Now()
		m := &incoming{a: a, plan: plan, rec: rec, work: &destinationWork{named: a.tellNames(plan, rec)}}
		m.awaitNames(ctx)
		if waited := time.Since(begun); waited > 0 {
			t.Errorf("it waits for %v", waited)
		}
		if notes := rec.Snapshot().Notes; len(notes) != 1 || !strings.Contains(notes[0], "trying again") {
			t.Errorf("noted: %q", notes)
		}
		time.Sleep(time.Hour)
		if notes := rec.Snapshot().Notes; len(notes) != 2 || !strings.Contains(notes[1], "given up") {
			t.Errorf("noted in the end: %q", notes)
		}
		cancel()
		a.actors.Wait()
	})
}

// TestSilentNameServer: a name server that says nothing does not hold up what a move's end has to do, and not the end
// for longer than a moment, all in all: it is noted that it has not answered yet.
func TestSilentNameServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, g, d := leasing(t)
		a.config.Network.Bridge = "no-such-bridge"
		next, old := migration.Address{Prefix: netip.MustParsePrefix("10.2.1.21/24"), Home: "rome"}, migration.Address{Prefix: netip.MustParsePrefix("10.1.1.21/24"), Home: "paris"}
		plan := migration.Plan{ID: d.ID, Guest: g.Name(), From: "paris", To: "rome", Network: "mptcp", Held: []migration.Address{old}, Next: []migration.Address{next}}
		var asked []time.Duration
		begun := time.Now()
		g.SpeakBy(usersAt{forgetful{silent: new(bool), dropped: new([]netip.Addr)}, func() { asked = append(asked, time.Since(begun)) }})
		g.Remember(func(h *care.Held) { h.Addresses = []migration.Address{next, old} })
		d.Leased = false
		place(a, d)
		m := &incoming{a: a, plan: plan, rec: record.New("rome", plan, time.Now()), work: &destinationWork{guest: g, keepsOld: true}}
		m.work.named = &telling{make(chan struct{}), begun.Add(nameSettle)}
		for range 2 { // it is done again where something of it cannot be done
			if err := m.leave(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begun); took > nameSettle+2*drainWait || len(asked) == 0 || asked[0] > 0 {
			t.Errorf("%v all in all; who needs the old address was asked after %v", took, asked)
		}
		if notes := strings.Join(m.rec.Snapshot().Notes, "\n"); strings.Count(notes, "no answer yet") != 1 || !strings.Contains(notes, "the history of rome") {
			t.Errorf("noted: %s", notes)
		}
		m.work.named.by = time.Now().Add(time.Hour)
		tried := make(chan struct{})
		close(tried)
		m.work.named.tried, begun = tried, time.Now()
		if m.awaitNames(t.Context()); time.Since(begun) > 0 {
			t.Errorf("one that has answered is waited for, for %v", time.Since(begun))
		}
	})
}

// usersAt is the channel of a guest that says when it was asked who needs addresses.
type usersAt struct {
	forgetful
	asked func()
}

func (u usersAt) Users(ctx context.Context, addrs ...netip.Addr) (guest.Users, error) {
	u.asked()
	return u.forgetful.Users(ctx, addrs...)
}

// TestNameOfAGuestThatWentOn: the name server is not told, later on, of addresses that the guest has left: its next
// host has told it of others.
func TestNameOfAGuestThatWentOn(t *testing.T) {
	a := &Agent{config: &config.Config{}, guests: guests.In(t.TempDir())}
	here := migration.Address{Prefix: netip.MustParsePrefix("10.2.1.10/24")}
	g := guests.New(care.Held{Description: config.Description{Name: "web"}, Addresses: []migration.Address{here}}, nil)
	underCare(t, a.guests, "web", g)
	still := func() bool { return a.hasAddresses("web", []migration.Address{here}) }
	m := &outgoing{}
	taken(t, g, "m-00000002")
	a.outgoing = map[string]*outgoing{"m-00000002": m}
	if !still() {
		t.Fatal("it is not here")
	}
	if m.told.Store(new(sourceDoing(t, migration.Release))); still() {
		t.Error("it was let go, and its next host tells of it")
	}
	m.told.Store(nil)
	if leavesCare(t, a.guests, "web"); still() {
		t.Error("it is under care no more")
	}
}
