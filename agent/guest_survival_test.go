package agent

import (
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/record"
	"godwit/agent/statefile"
	"godwit/internal/clock"
	"godwit/migration"
	"godwit/vm/guest"
)

// TestNotListed: a report without a list says why, once and truly: an agent that was started again since the handover never
// had it, and the guest's channel may be as good as ever.
func TestNotListed(t *testing.T) {
	m := landing(t, talking(t, map[string]guest.Handler{}))
	m.survive(t.Context())
	const want = "the guest's connections are not known: none were listed in the handover: its channel was silent, or the agent was started again since"
	if s := m.rec.Snapshot().Survival; s == nil || s.Unknown != want {
		t.Errorf("%+v, want %q", s, want)
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
