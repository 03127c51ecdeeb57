package agent

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"godwit/agent/detour"
	"godwit/agent/journal"
	"godwit/agent/record"
	"godwit/internal/clock"
	"godwit/migration"
	"godwit/netstate"
)

// TestNeededSurvivesTheAgent: what a guest that has landed needs of the host that it left is known to an agent
// that is started again while it cleans up.
func TestNeededSurvivesTheAgent(t *testing.T) {
	a := startedAgain(t)
	rememberedGuest(t, a)
	want := &detour.Needed{
		Leased: []netip.Addr{netip.MustParseAddr("10.1.1.10"), netip.MustParseAddr("10.9.1.4")},
		Moved:  []netip.Addr{netip.MustParseAddr("10.9.1.4")}, Lease: time.Hour,
	}
	m := &outgoing{
		a: a, plan: migration.Plan{ID: "m-00000001", Guest: "web", From: "rome", To: "paris", Epoch: 1},
		work: &sourceWork{}, rec: record.New("rome", migration.Plan{ID: "m-00000001"}, a.clock()),
	}
	m.work.needed.Store(want)
	var err error
	if m.log, err = journal.Create(a.config.StatePath("journal"), "m-00000001"); err != nil {
		t.Fatal(err)
	}
	if err := m.persist(sourceDoing(t, migration.CleanSource), false); err != nil {
		t.Fatal(err)
	}
	m.log.Close() //nolint:errcheck // it is written
	a.resumeMigrations(a.ctx, a.readopt(a.ctx))
	resumed := a.outgoing["m-00000001"]
	if resumed == nil {
		t.Fatal("it is not gone on with")
	}
	if diff := cmp.Diff(want, resumed.work.needed.Load(), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Error(diff)
	}
}

// TestTunnelDown: when a migration's tunnel ended is told also where its addresses are needed on, by another way.
func TestTunnelDown(t *testing.T) {
	home := netip.MustParseAddr("10.1.1.10")
	for name, c := range map[string]struct {
		needed *detour.Needed
		down   bool
	}{
		"nobody needs it":         {&detour.Needed{}, true},
		"another way is needed":   {&detour.Needed{Leased: []netip.Addr{home}, Moved: []netip.Addr{home}, Lease: time.Hour}, true},
		"it is needed, by no way": {&detour.Needed{Leased: []netip.Addr{home}, Lease: time.Hour}, false},
	} {
		a, _, d := leasing(t)
		d.Visiting, d.Away = nil, []netstate.Away{{Addr: home}}
		plan := migration.Plan{ID: d.ID, Guest: d.Guest, Held: []migration.Address{{Prefix: netip.PrefixFrom(home, 24)}}}
		m := &outgoing{a: a, plan: plan, work: &sourceWork{}, rec: record.New("rome", plan, time.Now())}
		m.work.needed.Store(c.needed)
		m.settleDetours(t.Context()) //nolint:errcheck // what of it is in the kernel is not the test's
		if down := m.rec.Snapshot().TunnelDown != 0; down != c.down {
			t.Errorf("%s: down %v", name, down)
		}
	}
}

// TestEndsTheLeaseOfTheMoveBefore: a guest that moves on within the lease of the move by which it came ends that lease
// here, of which it is told as of any other, but where what came by it goes on over this host.
func TestEndsTheLeaseOfTheMoveBefore(t *testing.T) {
	old := netip.MustParseAddr("10.1.1.20")
	for name, c := range map[string]struct {
		change func(*detour.Detour)
		needed detour.Needed
		told   int
	}{
		"its home sends to where it goes": {func(*detour.Detour) {}, detour.Needed{Leased: []netip.Addr{old}, Moved: []netip.Addr{old}, Lease: time.Hour}, 1},
		"nothing needs it":                {func(*detour.Detour) {}, detour.Needed{}, 1},
		"it goes on over this host":       {func(*detour.Detour) {}, detour.Needed{Leased: []netip.Addr{old}, Lease: time.Hour}, 0},
		"it had no lease":                 {func(d *detour.Detour) { d.Leased = false }, detour.Needed{}, 0},
		"nothing took its tunnel":         {func(d *detour.Detour) { d.Visiting[0].Tunnel = "" }, detour.Needed{}, 0},
	} {
		a, _, d := leasing(t)
		d.Visiting[0].Tunnel = d.Tunnel.Name
		c.change(d)
		place(a, d)
		plan := migration.Plan{ID: "m-00000002", Guest: d.Guest, From: "rome", To: "oslo"}
		m := &outgoing{a: a, plan: plan, work: &sourceWork{}, rec: record.New("rome", plan, time.Now())}
		m.work.needed.Store(&c.needed)
		m.settleDetours(t.Context()) //nolint:errcheck // what of it is in the kernel is not the test's
		now, cut := context.WithCancel(t.Context())
		cut()
		told := 0
		for _, e := range a.records.Find(d.ID).Watch(now, 0).Events {
			if e.Name == migration.LeaseEnded {
				told++
			}
		}
		if rep, _ := a.records.Report(d.ID); told != c.told || (rep.TunnelDown != 0) != (c.told != 0) {
			t.Errorf("%s: told %d times, down at %d", name, told, rep.TunnelDown)
		}
	}
}

// TestSettlesNoWayOfALaterMove: a host that cleans up late after its guest has left, as its agent was started again
// within that, leaves the ways alone that the guest's next host has asked it for meanwhile: such as one for good, and
// one that is not asked to go yet.
func TestSettlesNoWayOfALaterMove(t *testing.T) {
	home := netip.MustParseAddr("10.1.1.10")
	for name, way := range map[string]*detour.Detour{
		"for good":             {Leased: true, Away: []netstate.Away{{Addr: home, Active: true}}},
		"not asked to go yet":  {},
		"asked for once again": {Leased: true, Until: clock.Now().Add(2 * time.Hour), Standing: []netstate.Away{{Addr: home}}},
	} {
		a, _, d := leasing(t)
		way.ID, way.Guest, way.Peer, way.Asked = "m-00000002-rome", d.Guest, "oslo", []netip.Addr{home}
		place(a, way)
		leased, until := way.Leased, way.Until
		plan := migration.Plan{ID: d.ID, Guest: d.Guest, Held: []migration.Address{{Prefix: netip.PrefixFrom(home, 24)}}}
		m := &outgoing{a: a, plan: plan, work: &sourceWork{}, rec: record.New("rome", plan, time.Now())}
		m.work.needed.Store(&detour.Needed{Leased: []netip.Addr{home}, Lease: time.Hour})
		m.settleDetours(t.Context()) //nolint:errcheck // what of it is in the kernel is not the test's
		got, there := a.detours.Get(way.ID)
		if !there || got.Leased != leased || !got.Until.Equal(until) {
			t.Errorf("%s: there %v, leased %v until %v", name, there, got.Leased, got.Until)
		}
		if _, there := a.detours.Get(d.ID); there {
			t.Errorf("%s: its own is there", name)
		}
	}
}
