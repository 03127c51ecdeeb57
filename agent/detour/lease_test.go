package detour

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/internal/clock"
	"godwit/netstate/tunnel"
)

func TestClockSteps(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var c clockSteps
	for i, look := range []struct {
		wall, since, want time.Duration
	}{
		{0, 5 * time.Second, 0}, // the first look knows of none
		{time.Second, 6 * time.Second, 0},
		{time.Hour, 7 * time.Second, time.Hour - 2*time.Second},
		{time.Hour + time.Second, 8 * time.Second, 0},
		{2 * time.Second, 9 * time.Second, -time.Hour},
		{3*time.Second + 500*time.Millisecond, 10 * time.Second, 0}, // slewed
		{time.Hour, time.Hour + 6500*time.Millisecond, 0},           // asleep for an hour: both went on
	} {
		if got := c.see(start.Add(look.wall), look.since); got != look.want {
			t.Errorf("look %d: stepped by %v, want %v", i, got, look.want)
		}
	}
}

func TestLeasesMoveWithTheClock(t *testing.T) {
	now := clock.Now()
	const a, b = "m-0000000a", "m-0000000b-rome"
	s := leased(t, map[string]*Detour{a: {ID: a, Guest: "web", Up: now, Until: now.Add(config.DefaultLease), Tunnel: tunnel.Config{Lease: now.Add(config.DefaultLease)}}, b: {ID: b, Guest: "web", Up: now}})
	stepped(s, time.Hour)
	if step, err := s.Shifted(); err != nil || (step-time.Hour).Abs() > time.Second {
		t.Fatalf("stepped by %v, %v", step, err)
	}
	if step, err := s.Shifted(); err != nil || step != 0 {
		t.Fatalf("stepped by %v more, %v", step, err)
	}
	if got := s.byID[a].Until.Sub(now); (got - config.DefaultLease - time.Hour).Abs() > time.Second {
		t.Errorf("a's lease ends in %v", got)
	}
	if got := s.byID[a].Tunnel.Lease.Sub(now); (got - config.DefaultLease - time.Hour).Abs() > time.Second {
		t.Errorf("its tunnel's own ends in %v: it could not be brought up, or lengthened, by that", got)
	}
	if !s.byID[b].Until.IsZero() {
		t.Error("one without an end has got one")
	}
	again, err := Load(s.path, config.Network{})
	if err != nil || (again.byID[a].Until.Sub(now)-config.DefaultLease-time.Hour).Abs() > time.Second {
		t.Errorf("on the disk: %v, %v", again, err)
	}
	for _, left := range []time.Duration{0, time.Minute} {
		d := &Detour{}
		if d.LeaseFor(left); !d.Leased || d.Left() > left || left-d.Left() > time.Second {
			t.Errorf("leased for %v, %v are left", left, d.Left())
		}
	}
}

// leased is a host's detours, whose kernel is not asked.
func leased(t *testing.T, all map[string]*Detour) *Store {
	t.Helper()
	s, err := Load(filepath.Join(t.TempDir(), "detours.json"), config.Network{})
	if err != nil {
		t.Fatal(err)
	}
	s.byID = all
	return s
}

// stepped makes it that the clock was stepped by so much since s looked at it.
func stepped(s *Store, by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps.wall = s.steps.wall.Add(-by)
}

// TestLeaseAfterAStep: what is leased, or looked at, right after the clock was stepped, and
// before anybody has noticed, is by the new time: it is not moved as well, nor over.
func TestLeaseAfterAStep(t *testing.T) {
	for _, by := range []time.Duration{time.Hour, -time.Hour} {
		const id, other = "m-0000000a", "m-0000000b"
		s := leased(t, map[string]*Detour{
			id:    {ID: id, Guest: "web"},
			other: {ID: other, Guest: "db", Leased: true, Until: clock.Now().Add(-by).Add(config.DefaultLease)}, // by the time before
		})
		stepped(s, by)
		s.Change("web", func(all map[string]*Detour) { all[id].LeaseFor(config.DefaultLease) }) //nolint:errcheck // there is no such guest
		if _, err := s.Shifted(); err != nil {
			t.Fatal(err)
		}
		for _, d := range s.List("") {
			if left := d.Left(); (left - config.DefaultLease).Abs() > 10*time.Second {
				t.Errorf("stepped by %v: %v are left of the lease for %s, want %v", by, left, d.Guest, config.DefaultLease)
			}
		}
		stepped(s, by)
		s.byID[id].Until = s.byID[id].Until.Add(-by)
		if d, now, ok := s.Look(id); !ok || now.After(d.Until) || d.Left() < config.DefaultLease-10*time.Second {
			t.Errorf("stepped by %v and looked at: %v are left", by, d.Left())
		}
	}
}

// TestBootedByAClockThatIsBehind: no lease has more left than it was given for, though the host boots by a clock that
// is years behind: set right later, it would be moved along. Nor was anything made in the future; which of two ways is
// the older stays.
func TestBootedByAClockThatIsBehind(t *testing.T) {
	const years = 3 * 365 * 24 * time.Hour
	was := clock.Now().Add(years) // as it was written down
	const known, old, forGood = "m-0000000a", "m-0000000b", "m-0000000c"
	s := leased(t, map[string]*Detour{
		known:   {ID: known, Guest: "web", Up: was.Add(-time.Minute), Leased: true, Until: was.Add(5 * time.Minute), For: config.DefaultLease},
		old:     {ID: old, Guest: "web", Up: was, Leased: true, Until: was.Add(5 * time.Minute)}, // by an agent that did not say for how long
		forGood: {ID: forGood, Guest: "web", Up: was.Add(-time.Hour), Leased: true},
	})
	if err := s.Change("web", func(map[string]*Detour) {}); err != nil {
		t.Fatal(err)
	}
	s, err := Load(s.path, config.Network{})
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]time.Duration{known: config.DefaultLease, old: config.MostLease, forGood: 0} {
		if left := s.byID[id].Left(); left > want || left < want-time.Minute {
			t.Errorf("%s: %v are left, want %v", id, left, want)
		}
	}
	if all := s.of("web"); all[0].ID != forGood || all[1].ID != known || all[2].Up.After(clock.Now()) {
		t.Errorf("made at %v, %v, %v", all[0].Up, all[1].Up, all[2].Up)
	}
}

// TestSteppedWhileNoAgentRan: a lease keeps its length over a step of the clock that no agent saw, as none ran. Of one
// that was written before the host booted anew it is not known, and it ends when it was to.
func TestSteppedWhileNoAgentRan(t *testing.T) {
	const id = "m-0000000a"
	for _, by := range []time.Duration{7 * time.Hour, -7 * time.Hour} {
		was := clock.Now().Add(-by) // what the clock showed when it was written
		s := leased(t, map[string]*Detour{id: {ID: id, Guest: "web", Up: was.Add(-time.Minute), Leased: true, Until: was.Add(5 * time.Minute)}})
		stepped(s, by)
		if err := s.write(1); err != nil {
			t.Fatal(err)
		}
		again, err := Load(s.path, config.Network{})
		if err != nil {
			t.Fatal(err)
		}
		d, now, _ := again.Look(id)
		if left, old := d.Until.Sub(now), now.Sub(d.Up); (left-5*time.Minute).Abs() > 20*time.Second || (old-time.Minute).Abs() > 20*time.Second {
			t.Errorf("stepped by %v: %v are left of five minutes, and it is %v old, not a minute", by, left, old)
		}

		data, err := os.ReadFile(s.path)
		if err == nil {
			err = os.WriteFile(s.path, bytes.ReplaceAll(data, []byte(clock.Boot()), []byte("another")), 0o600)
		}
		if err == nil {
			again, err = Load(s.path, config.Network{})
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := again.byID[id].Until; got.After(was.Add(5 * time.Minute)) {
			t.Errorf("stepped by %v and booted anew: it ends %v later than it was to", by, got.Sub(was.Add(5*time.Minute)))
		}
	}
}
