package migration

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// arrive feeds inputs, each of which must fit.
func arrive(t *testing.T, d Destination, inputs ...Input) (Destination, []Effect) {
	t.Helper()
	var effects []Effect
	for _, in := range inputs {
		next, e, err := d.Step(in)
		if err != nil {
			t.Fatalf("%s of %q in %q: %v", in.Kind, in.Effect, d.Landing, err)
		}
		d, effects = next, e
	}
	return d, effects
}

func doesNotFit(t *testing.T, d Destination, in Input) {
	t.Helper()
	next, effects, err := d.Step(in)
	if err == nil {
		t.Fatalf("%s of %q in %q: no error", in.Kind, in.Effect, d.Landing)
	}
	if diff := cmp.Diff(d, next); diff != "" || effects != nil {
		t.Fatalf("refused input changed the state: %s, effects %v", diff, effects)
	}
}

var (
	begin    = Input{Kind: Start}
	received = Input{Kind: Done, Effect: Receive}
	started  = Input{Kind: Done, Effect: StartGuest}
	adopted  = Input{Kind: Done, Effect: Adopt}
	left     = Input{Kind: Done, Effect: Leave}
	sentBack = Input{Kind: Done, Effect: SendBack}
	letGo    = Input{Kind: Released}
	loaded   = Input{Kind: LoadedAll}
	restart  = Input{Kind: Restarted, Problem: why}
	abort    = Input{Kind: Abort, Problem: why}
)

// landings are destinations at each landing, and how they got there.
var landings = map[Landing][]Input{
	Receiving: {begin},
	Waiting:   {begin, received},
	Starting:  {begin, received, letGo, loaded},
	Adopting:  {begin, received, letGo, loaded, started},
	Leaving:   {begin, received, letGo, loaded, started, adopted},
	Landed:    {begin, received, letGo, loaded, started, adopted, left},
	Declining: {begin, received, abort},
	Gone:      {begin, received, abort, sentBack},
}

func TestDestinationLandings(t *testing.T) {
	want := map[Landing]struct {
		effect           Effect
		running, refused bool
		outcome          Outcome
	}{
		Receiving: {effect: Receive},
		Waiting:   {},
		Starting:  {effect: StartGuest},
		Adopting:  {effect: Adopt, running: true, outcome: Completed},
		Leaving:   {effect: Leave, running: true, outcome: Completed},
		Landed:    {running: true, outcome: Completed},
		Declining: {effect: SendBack, refused: true, outcome: Aborted},
		Gone:      {refused: true, outcome: Aborted},
	}
	for landing, inputs := range landings {
		w := want[landing]
		d, effects := arrive(t, Destination{}, inputs...)
		if d.Landing != landing || d.Running() != w.running || d.Refused() != w.refused || d.Outcome != w.outcome {
			t.Errorf("want %s, %+v: %+v", landing, w, d)
		}
		if w.effect == "" {
			wantEffects(t, effects)
		} else {
			wantEffects(t, effects, w.effect)
		}
		if landing != Declining {
			doesNotFit(t, d, Input{Kind: NoAnswer})
		}
	}
	doesNotFit(t, Destination{}, letGo)
	doesNotFit(t, Destination{}, restart)
}

// TestDestinationStartsOnce: in every order of being prepared, released and loaded
// (and of hearing it twice), the last of the three starts the guest, no other.
func TestDestinationStartsOnce(t *testing.T) {
	orders := [][]Input{
		{received, letGo, loaded}, {received, loaded, letGo}, {letGo, received, loaded},
		{letGo, loaded, received}, {loaded, received, letGo}, {loaded, letGo, received},
	}
	for _, order := range orders {
		for _, twice := range []bool{false, true} {
			d, _ := arrive(t, Destination{}, begin)
			for i, in := range order {
				var effects []Effect
				d, effects = arrive(t, d, in)
				if i < 2 && len(effects) > 0 || i == 2 && len(effects) != 1 {
					t.Fatalf("%v: %v after input %d", order, effects, i)
				}
				if twice && in.Kind != Done {
					d, effects = arrive(t, d, in)
					wantEffects(t, effects)
				}
			}
			if d.Landing != Starting {
				t.Fatalf("%v: %+v", order, d)
			}
		}
	}
}

func TestDestinationRefusesForGood(t *testing.T) {
	for _, c := range []struct {
		name   string
		inputs []Input
	}{
		{"abort while being prepared", []Input{begin, abort}},
		{"cannot be prepared", []Input{begin, {Kind: Fault, Effect: Receive, Problem: why}}},
		{"abort while waiting", []Input{begin, received, abort}},
		{"memory broke after the release", []Input{begin, received, letGo, {Kind: Fault, Problem: why}}},
		{"asked to, after the release", []Input{begin, received, letGo, abort}},
		{"cannot be started", []Input{begin, received, letGo, loaded, {Kind: Fault, Effect: StartGuest, Problem: why}}},
		{"restarted while being prepared", []Input{begin, restart}},
		{"restarted while waiting, not released", []Input{begin, received, restart}},
		{"restarted while waiting, loaded", []Input{begin, received, loaded, restart}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, effects := arrive(t, Destination{}, c.inputs...)
			wantEffects(t, effects, SendBack)
			if !d.Refused() || d.Running() || d.Problem != why {
				t.Fatalf("%+v", d)
			}
			for _, in := range []Input{letGo, loaded, abort, received, started, {Kind: Fault, Problem: why}, {Kind: RunsAlready}} {
				next, effects := arrive(t, d, in) // what comes late changes nothing
				wantEffects(t, effects)
				if diff := cmp.Diff(d, next); diff != "" {
					t.Fatalf("%s of %q changed a refusal: %s", in.Kind, in.Effect, diff)
				}
			}
			_, effects = arrive(t, d, restart)
			wantEffects(t, effects, SendBack)
			for _, end := range []InputKind{Done, Fault} {
				gone, effects := arrive(t, d, Input{Kind: end, Effect: SendBack})
				wantEffects(t, effects)
				if gone.Landing != Gone || !gone.Refused() {
					t.Fatalf("%+v", gone)
				}
				for _, in := range []Input{begin, letGo, loaded, abort, restart, sentBack} {
					doesNotFit(t, gone, in)
				}
			}
		})
	}
}

// TestDestinationBeingStarted: what is being started may run already, so nothing
// but its own failure refuses it.
func TestDestinationBeingStarted(t *testing.T) {
	d, _ := arrive(t, Destination{}, landings[Starting]...)
	doesNotFit(t, d, abort)
	doesNotFit(t, d, Input{Kind: Fault, Problem: why})
	doesNotFit(t, d, Input{Kind: Fault, Effect: Receive, Problem: why})
	doesNotFit(t, d, received)
}

func TestDestinationRestarts(t *testing.T) {
	released := []Input{begin, received, letGo}
	for _, c := range []struct {
		name   string
		inputs []Input
		in     Input
		want   Landing
		effect Effect
	}{
		{"released, not loaded: waits on", released, restart, Waiting, ""},
		{"released and loaded: asks QEMU again", landings[Starting], restart, Waiting, ""},
		{"found running while it waited", released, Input{Kind: RunsAlready}, Adopting, Adopt},
		{"found running while it was started", landings[Starting], Input{Kind: RunsAlready}, Adopting, Adopt},
		{"runs: adopts again", landings[Adopting], restart, Adopting, Adopt},
		{"runs: found running", landings[Adopting], Input{Kind: RunsAlready}, Adopting, ""},
		{"leaving: leaves again", landings[Leaving], restart, Leaving, Leave},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, _ := arrive(t, Destination{}, c.inputs...)
			d, effects := arrive(t, d, c.in)
			if c.effect == "" {
				wantEffects(t, effects)
			} else {
				wantEffects(t, effects, c.effect)
			}
			if d.Landing != c.want {
				t.Fatalf("%+v", d)
			}
		})
	}
}

// TestDestinationVanished: of a guest that may have run here, and whose QEMU is gone,
// nothing is said but by those who know.
func TestDestinationVanished(t *testing.T) {
	vanish := Input{Kind: Vanish, Problem: why}
	for _, landing := range []Landing{Waiting, Starting, Adopting, Leaving} {
		d, effects := arrive(t, arriveAt(t, landing), vanish)
		wantEffects(t, effects)
		if !d.Vanished || d.Refused() || d.Landing != landing {
			t.Fatalf("%s: %+v", landing, d)
		}
		for _, in := range []Input{letGo, vanish, restart} {
			next, effects := arrive(t, d, in)
			wantEffects(t, effects)
			if released := d.Released || in == letGo; next.Released != released || !next.Vanished { // else its source waits for an answer, and has it
				t.Fatalf("%s: %+v", in.Kind, next)
			}
		}
		for _, in := range []Input{loaded, {Kind: AskRefusal, Problem: why}, {Kind: Fault, Problem: why}, started} {
			doesNotFit(t, d, in)
		}
		if d.Running() {
			doesNotFit(t, d, abort)
		} else {
			next, effects := arrive(t, d, abort) // the source never let go
			wantEffects(t, effects, SendBack)
			if !next.Refused() || next.Vanished {
				t.Fatalf("%+v", next)
			}
		}
		for _, in := range []Input{{Kind: Disown, Problem: why}, {Kind: Abort, Epoch: 1, Problem: why}} {
			next, effects := arrive(t, d, in)
			wantEffects(t, effects, SendBack)
			if !next.Refused() || !next.MustSync(d) || next.Declines() != (in.Kind == Abort) {
				t.Fatalf("%+v", next)
			}
			if next, _ = arrive(t, next, Input{Kind: Done, Effect: SendBack}); !next.Declines() {
				t.Fatalf("%+v", next)
			}
		}
	}
	d, effects := arrive(t, arriveAt(t, Receiving), vanish) // nobody can have let go to it
	wantEffects(t, effects, SendBack)
	if !d.Refused() {
		t.Fatalf("%+v", d)
	}
}

// TestDestinationDisowned: a person's word ends what is being started here, or runs, though its QEMU is there still;
// the source hears of that when it is gone.
func TestDestinationDisowned(t *testing.T) {
	word := Input{Kind: Disown, Problem: why}
	for _, landing := range []Landing{Starting, Adopting, Leaving} {
		d := arriveAt(t, landing)
		next, effects := arrive(t, d, word)
		wantEffects(t, effects, SendBack)
		if !next.Refused() || !next.MustSync(d) || next.Declines() {
			t.Fatalf("%s: %+v", landing, next)
		}
		if next, _ = arrive(t, next, Input{Kind: Done, Effect: SendBack}); !next.Declines() {
			t.Fatalf("%s: %+v", landing, next)
		}
	}
	for _, landing := range []Landing{Receiving, Waiting, Landed} {
		doesNotFit(t, arriveAt(t, landing), word)
	}
}

func arriveAt(t *testing.T, landing Landing) Destination {
	t.Helper()
	d, _ := arrive(t, Destination{}, landings[landing]...)
	return d
}

// TestDestinationEpochs: an earlier right says nothing, a later one ends this.
func TestDestinationEpochs(t *testing.T) {
	for landing := range landings {
		d := arriveAt(t, landing)
		d.Epoch = 5
		for _, kind := range []InputKind{Released, Abort, AskRefusal} {
			doesNotFit(t, d, Input{Kind: kind, Epoch: 4, Problem: why})
		}
		doesNotFit(t, d, Input{Kind: Released, Epoch: 6})
		late := Input{Kind: Abort, Epoch: 6, Problem: why}
		if d.Refused() {
			doesNotFit(t, d, late)
			continue
		}
		next, effects := arrive(t, d, late)
		wantEffects(t, effects, SendBack)
		if !next.Refused() {
			t.Fatalf("%s: %+v", landing, next)
		}
	}
}

// TestDestinationRepairsForward: once the guest runs here nothing takes it back.
func TestDestinationRepairsForward(t *testing.T) {
	for landing, effect := range map[Landing]Effect{Adopting: Adopt, Leaving: Leave} {
		d, _ := arrive(t, Destination{}, landings[landing]...)
		next, effects := arrive(t, d, Input{Kind: Fault, Effect: effect, Problem: why})
		wantEffects(t, effects, effect)
		if next.Landing != landing || !next.Running() {
			t.Fatalf("%s: %+v", landing, next)
		}
		for _, in := range []Input{abort, letGo, loaded} {
			next, effects := arrive(t, d, in)
			wantEffects(t, effects)
			if next.Landing != landing {
				t.Fatalf("%s after %s: %+v", landing, in.Kind, next)
			}
		}
		for _, in := range []Input{started, {Kind: Done}, {Kind: Fault, Problem: why}} {
			doesNotFit(t, d, in) // the end of something else does not end this
		}
	}
}

// TestDestinationRepairedHasNoProblem: a guest that landed tells of no fault that was repaired, nor of its agent's
// restart, which came after it was let go.
func TestDestinationRepairedHasNoProblem(t *testing.T) {
	for landing, effect := range map[Landing]Effect{Adopting: Adopt, Leaving: Leave} {
		d, _ := arrive(t, Destination{}, landings[landing]...)
		d, effects := arrive(t, d, restart)
		wantEffects(t, effects, effect)
		if d.Problem != nil {
			t.Errorf("%s, restarted: %v", landing, d.Problem)
		}
		if d, _ = arrive(t, d, Input{Kind: Fault, Effect: effect, Problem: why}); d.Problem != why {
			t.Errorf("%s, while it is repaired: %v", landing, d.Problem)
		}
		for _, in := range []Input{adopted, left} {
			if in.Effect == Leave || landing == Adopting {
				d, _ = arrive(t, d, in)
			}
		}
		if d.Landing != Landed || d.Outcome != Completed || d.Problem != nil {
			t.Errorf("from %s: %+v", landing, d)
		}
	}
}
