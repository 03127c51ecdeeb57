package agent

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"godwit/agent/detour"
	"godwit/agent/record"
	"godwit/agent/statefile"
	"godwit/migration"
)

// TestLeaseEndOutlivesTheAgent: of a lease that ended as the agent was killed the next one tells, once, also where that
// was between writing it down and telling it; of one that has not ended, or was told of, it tells nothing.
func TestLeaseEndOutlivesTheAgent(t *testing.T) {
	for name, c := range map[string]struct {
		killed func(t *testing.T, state string, d *detour.Detour) // what of STATE is otherwise at its end
		told   int
	}{
		"just before it told":           {func(*testing.T, string, *detour.Detour) {}, 1},
		"before it was in the history":  {func(t *testing.T, state string, d *detour.Detour) { downAt(t, state, d.ID, 0) }, 1},
		"before the detour had ended":   {func(t *testing.T, state string, d *detour.Detour) { standsIn(t, state, d) }, 0},
		"the tunnel alone was not used": {func(t *testing.T, state string, d *detour.Detour) { d.Visiting[0].Tunnel = ""; standsIn(t, state, d) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			a, _, d := leasing(t)
			d.Visiting[0].Tunnel = d.Tunnel.Name
			place(a, d)
			rec := a.records.Find(d.ID)
			rec.Edit(func(r *record.Report) { r.Ended, r.TunnelUp = 5, 3 })
			if err := a.records.Write(d.ID+".json", rec.Snapshot); err != nil {
				t.Fatal(err)
			}
			state := filepath.Join(t.TempDir(), "state")
			rec.Told = func(migration.Plan, record.Event) {
				if err := os.CopyFS(state, os.DirFS(a.config.State)); err != nil {
					t.Error(err)
				}
			}
			if err := a.endDetour(t.Context(), *d); err != nil {
				t.Fatal(err)
			}
			nothingToTell(t, a)
			c.killed(t, state, d)

			b, _ := served(t)
			b.config.State = state
			b.records = noRecords(b.config)
			var err error
			if b.detours, err = detour.Load(b.config.StatePath("detours.json"), b.config.Network); err != nil {
				t.Fatal(err)
			}
			b.resumeLeaseEnds()
			reader := b.feed.join() // as nobody can before the agent serves
			for range 2 {
				b.tellLeaseEnds()
			}
			if len(reader.events) != c.told {
				t.Errorf("told %d times, want %d", len(reader.events), c.told)
			}
			for range len(reader.events) {
				if e := <-reader.events; e.Name != migration.LeaseEnded || e.Migration != d.ID || e.Guest != d.Guest {
					t.Errorf("told %+v", e)
				}
			}
			if rep, ok := b.records.Report(d.ID); c.told > 0 && (!ok || rep.TunnelDown == 0) {
				t.Errorf("in the history: %v, %+v", ok, rep)
			}
			nothingToTell(t, b)
		})
	}
}

// TestLeaseEndIsHeard: it is told once the agent serves, and those who hear of it may be there, at the first look at
// detours; not again where it was told since.
func TestLeaseEndIsHeard(t *testing.T) {
	for since, want := range map[bool]int{false: 1, true: 0} {
		synctest.Test(t, func(t *testing.T) {
			a, _, d := leasing(t)
			displace(a, d.ID)
			a.willEnd(*d)
			a.resumeLeaseEnds()
			if since {
				a.endTold(*d)
			}
			told := 0
			a.records.Find(d.ID).Told = func(_ migration.Plan, e record.Event) {
				if e.Name == migration.LeaseEnded {
					told++
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 3*leaseLook)
			defer cancel()
			a.keepDetours(ctx)
			a.actors.Wait()
			if nothingToTell(t, a); told != want {
				t.Errorf("told since: %t: told %d times", since, told)
			}
		})
	}
}

// nothingToTell checks that no end of a lease is left for the next agent.
func nothingToTell(t *testing.T, a *Agent) {
	t.Helper()
	if files, err := statefile.Files(a.config.StatePath("lease-ended")); err != nil || len(files) > 0 {
		t.Errorf("%v, %v", files, err)
	}
}

// downAt has the history of an agent's directory say when a tunnel went.
func downAt(t *testing.T, state, id string, down int64) {
	t.Helper()
	path := filepath.Join(state, "history", id+".json")
	var rep record.Report
	err := statefile.Read(path, &rep)
	if rep.TunnelDown = down; err == nil {
		err = statefile.Write(path, rep)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// standsIn has a detour be there, by an agent's directory.
func standsIn(t *testing.T, state string, d *detour.Detour) {
	t.Helper()
	if err := statefile.Write(filepath.Join(state, "detours.json"), map[string]*detour.Detour{d.ID: d}); err != nil {
		t.Fatal(err)
	}
}
