package migration

import (
	"slices"
	"testing"
)

// TestValid: every state that exploring comes to is valid, and others are not.
func TestValid(t *testing.T) {
	x := newExplorer(variant{})
	if f, _ := x.explore(world{kills: 1, faults: 1, asks: 1}, 0); f != nil {
		t.Fatal(f)
	}
	if f, _ := x.explore(world{late: true, kills: 1, deaths: 1}, 0); f != nil {
		t.Fatal(f)
	}
	if !slices.ContainsFunc(x.src, func(s Source) bool { return s.Course == Ended && s.Lost() }) {
		t.Error("no guest was lost")
	}
	for _, s := range x.src[1:] {
		if err := s.Valid(); err != nil {
			t.Errorf("%+v: %v", s, err)
		}
	}
	for _, d := range x.dst[1:] {
		if err := d.Valid(); err != nil {
			t.Errorf("%+v: %v", d, err)
		}
	}
	for _, s := range []Source{
		{Course: "sideways"}, {Course: Forward, At: len(sourceSteps)}, {Course: Forward, At: -1}, {Course: Undoing},
		{Course: Undoing, Undo: []Effect{Resume}},
		{Course: Undoing, Outcome: Failed, Undo: []Effect{Resume}},
		{Course: Undoing, Outcome: Aborted, Undo: []Effect{Resume, "explode"}}, {Course: Undoing, Outcome: Aborted, Undo: []Effect{""}}, {Course: Ended}, {Course: Ended, Outcome: InDoubt},
	} {
		if s.Valid() == nil {
			t.Errorf("%+v is valid", s)
		}
	}
	for _, d := range []Destination{{}, {Landing: "upside down"}} {
		if d.Valid() == nil {
			t.Errorf("%+v is valid", d)
		}
	}
}
