package migration

import (
	"slices"
	"testing"
)

// TestGuestThatStoodStill: one that somebody else had paused before it was to be stopped is not run on.
func TestGuestThatStoodStill(t *testing.T) {
	for _, kind := range []InputKind{Fault, Abort} {
		pausing := slices.IndexFunc(wantSteps, func(s step) bool { return s.do == Pause })
		s, effects := feed(t, sourceAt(t, pausing), Input{Kind: kind, Effect: Pause, Problem: why, Stood: true})
		wantEffects(t, effects, Unflip)
		for s.Course == Undoing {
			if err := s.Valid(); err != nil || slices.Contains(s.Undo, Resume) {
				t.Fatalf("%v: %v", s.Undo, err)
			}
			s, _ = feed(t, s, Input{Kind: Done, Effect: s.Undo[0]})
		}
		if !s.Stood || s.Outcome != Aborted {
			t.Errorf("%s: %+v", kind, s)
		}
	}
}
