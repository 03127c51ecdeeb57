package migration

import "testing"

// Post-copy: the guest may run at the destination while pages are missing that its source's QEMU has, and, until
// an agent ends, the source's forwarder.

// starves says that an effect of the destination waits for pages that are missing. A refusal ends that.
func (x *explorer) starves(w *world, e Effect) bool {
	return e == Leave && w.stream == thin && w.there.qemu == running && !x.dst[w.there.state].Refused()
}

// loseKept is the end of an agent, and with it of both forwarders.
func (w *world) loseKept() {
	w.died = w.died || w.kept && w.here.qemu == gone
	w.kept = false
}

// endHere is the end of the source's QEMU.
func (w *world) endHere() {
	needed := w.there.qemu != running || w.given || w.stream == thin && !w.kept
	w.died = w.died || w.here.qemu == running || w.here.qemu == paused && needed
	w.here.qemu = gone
}

// deaths are the ends of the source's QEMU, what its agent makes of them, and what follows a guest that may run.
func (x *explorer) deaths(w world, add adder) {
	if w.deaths > 0 && (w.here.qemu == running || w.here.qemu == paused) {
		next := w
		next.deaths--
		if next.stream == flowing {
			next.stream = broken
		}
		next.endHere()
		add(next, "source: QEMU is killed", "", 0)
	}
	s := x.src[w.here.state]
	if w.late && w.here.qemu == gone && s.Course == Forward && !s.Released() {
		next := w
		x.source(&next, Input{Kind: Abort, Problem: lost})
		add(next, "source: its QEMU is gone", "", 0)
	}
	next := w
	x.follow(&next)
	add(next, "source: brings the last page, or has none to bring", "", 0)
}

// follow brings what is missing, from the forwarder or from the stopped guest's QEMU; or gives the guest up, where
// the destination says that it misses pages and they are in neither.
func (x *explorer) follow(w *world) {
	s, d := x.src[w.here.state], x.dst[w.there.state]
	switch {
	case w.stream != thin || !w.there.up || !s.Released() || s.Course == Ended || d.Refused():
	case x.givesUpKept && w.here.qemu == gone:
		x.source(w, Input{Kind: Lose, Problem: lost})
	case w.there.qemu == gone:
	case w.kept, w.here.qemu == paused:
		w.stream, w.kept = whole, false
	case !x.waitsForEver:
		x.source(w, Input{Kind: Lose, Problem: lost})
	}
}

// TestSourceLoses: only what was let go is lost by pages that are nowhere; all is undone then, but that the guest
// runs on here.
func TestSourceLoses(t *testing.T) {
	lose := Input{Kind: Lose, Problem: lost}
	for at, step := range wantSteps {
		s := sourceAt(t, at)
		if step.do != Release && step.do != AwaitLanding {
			refused(t, s, lose)
			continue
		}
		s.InDoubt = step.do == Release
		next, effects := feed(t, s, lose)
		if next.InDoubt || next.Released() || !next.Lost() || !next.MustSync(s) || next.Problem != lost {
			t.Fatalf("%+v", next)
		}
		for _, undo := range []Effect{Unflip, UndoCopyMemory, UndoSeedDisks, UndoPrepareThere, UndoPrepareHere} {
			wantEffects(t, effects, undo)
			_, effects = feed(t, next, Input{Kind: Restarted, Problem: why})
			wantEffects(t, effects, undo)
			next, effects = feed(t, next, Input{Kind: Done, Effect: undo})
		}
		wantEffects(t, effects)
		if next.Course != Ended || !next.Lost() {
			t.Fatalf("%+v", next)
		}
	}
}

// TestDestinationLoses: a guest that can never be whole is given up, also where it runs or its QEMU is gone; nothing
// is said to a source before that is done.
func TestDestinationLoses(t *testing.T) {
	lose := Input{Kind: Lose, Problem: lost}
	for _, landing := range []Landing{Waiting, Adopting, Leaving} {
		for _, vanished := range []bool{false, true} {
			d := arriveAt(t, landing)
			if vanished {
				d, _ = arrive(t, d, Input{Kind: Vanish, Problem: why})
			}
			next, effects := arrive(t, d, lose)
			wantEffects(t, effects, SendBack)
			if !next.Refused() || next.Declines() || next.Outcome != Failed || next.Problem != lost || !next.MustSync(d) {
				t.Fatalf("%s: %+v", landing, next)
			}
			next, effects = arrive(t, next, Input{Kind: Restarted, Problem: why})
			wantEffects(t, effects, SendBack)
			if next, _ = arrive(t, next, Input{Kind: Done, Effect: SendBack}); next.Landing != Gone || next.Outcome != Failed {
				t.Fatalf("%s: %+v", landing, next)
			}
		}
	}
	doesNotFit(t, arriveAt(t, Starting), lose)
	doesNotFit(t, arriveAt(t, Landed), lose)
	doesNotFit(t, arriveAt(t, Leaving), Input{Kind: Lose, Epoch: 7, Problem: lost})
}
