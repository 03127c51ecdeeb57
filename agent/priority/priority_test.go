package priority

import (
	"testing"

	"godwit/migration"
)

// TestPrecedence: who waits most urgently decides, and with the last migration its precedence goes.
func TestPrecedence(t *testing.T) {
	var p Session
	nice := func(want int, how string, err error) {
		t.Helper()
		if err != nil || p.wanted() != want {
			t.Errorf("%s: nice %d, %v; want %d", how, p.wanted(), err, want)
		}
	}
	nice(0, "nobody asks", nil)
	nice(yields, "one copies", p.Ask("m-1", yields))
	nice(presses, "another's guest stands still", p.Ask("m-2", presses))
	nice(yields, "it runs again", p.Drop("m-2"))
	nice(0, "another is prepared", p.Ask("m-3", 0))
	p.Drop("m-3") //nolint:errcheck // as above
	p.starved = true
	nice(0, "other programs leave nothing", nil)
	nice(presses, "its guest stands still", p.Ask("m-1", presses))
	nice(0, "the last has ended", p.Drop("m-1"))
	nice(yields, "one copies, later", p.Ask("m-4", yields))
}

func TestPrecedenceOfPhases(t *testing.T) {
	var s migration.Source
	in := migration.Input{Kind: migration.Start}
	seen, following, copying := map[migration.Phase]int{}, map[migration.Phase]int{}, map[migration.Phase]int{}
	for s.Course != migration.Ended {
		next, effects, err := s.Step(in)
		if err != nil {
			t.Fatal(err)
		}
		s = next
		if s.Course == migration.Forward {
			seen[s.Phase()], following[s.Phase()], copying[s.Phase()] = AtSource(s, false, false), AtSource(s, true, false), AtSource(s, false, true)
		}
		if len(effects) > 0 {
			in = migration.Input{Kind: migration.Done, Effect: effects[0]}
		}
	}
	for phase, want := range map[migration.Phase]int{
		migration.Check: 0, migration.Prepare: 0, migration.Seed: yields, migration.Copy: yields,
		migration.Switch: presses, migration.Handover: presses, migration.Settle: 0,
	} {
		if seen[phase] != want {
			t.Errorf("%s: %d, want %d", phase, seen[phase], want)
		}
		if phase == migration.Handover || phase == migration.Settle {
			want = yields
		}
		if following[phase] != want {
			t.Errorf("%s, where memory follows: %d, want %d", phase, following[phase], want)
		}
	}
	if got := copying[migration.Switch]; got != yields {
		t.Errorf("in the switch, where the copy goes on: %d, want %d", got, yields)
	}
	for _, c := range []struct {
		d       migration.Destination
		follows bool
		want    int
	}{
		{migration.Destination{Landing: migration.Receiving}, true, 0},
		{migration.Destination{Landing: migration.Waiting}, true, yields},
		{migration.Destination{Landing: migration.Waiting, Released: true}, true, presses},
		{migration.Destination{Landing: migration.Adopting, Released: true}, false, presses},
		{migration.Destination{Landing: migration.Adopting, Released: true}, true, yields},
		{migration.Destination{Landing: migration.Leaving, Released: true}, true, yields},
		{migration.Destination{Landing: migration.Adopting, Released: true, Vanished: true}, true, 0},
	} {
		if got := AtDestination(c.d, c.follows); got != c.want {
			t.Errorf("%+v, memory follows %v: %d, want %d", c.d, c.follows, got, c.want)
		}
	}
}
