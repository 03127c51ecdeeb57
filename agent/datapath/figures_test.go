package datapath

import (
	"testing"

	"godwit/agent/record"
	"godwit/policy"
	"godwit/transfer/paths"
	"godwit/transfer/proxy"
)

// TestStandstillSaysWhyNoLane: a destination whose agent has ended is no path that is cut.
func TestStandstillSaysWhyNoLane(t *testing.T) {
	for want, d := range map[string]*record.DataPath{
		"": {Paths: []record.PathRate{{Path: "a", Lanes: 1, Last: "it was cut, and is back"}, {Path: "b"}}},
		", path a: connection refused, path b: no route to host": {Paths: []record.PathRate{
			{Path: "a", Last: "connection refused"}, {Path: "b", Last: "no route to host"}, {Path: "c", Lanes: 1},
		}},
	} {
		if got := WhyNoLane(d); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := WhyNoLane(nil); got != "" {
		t.Errorf("QEMU's own transfer: %q", got)
	}
}

// TestLeftIsNotNothing: what is little is not told as nothing, and what has left QEMU is left all the same.
func TestLeftIsNotNothing(t *testing.T) {
	for want, look := range map[string]policy.Look{
		"less than 0.1 MB is left": {Remaining: 60_000, Left: 99_999},
		"0.4 MB are left":          {Remaining: 400_000},
		"12.0 MB are left":         {Remaining: 0, Left: 12_000_000},
	} {
		if got := Left(look); got != want {
			t.Errorf("%+v: %q, want %q", look, got, want)
		}
	}
}

// TestFiguresTellWhatPathsCarry: now, beside what they can; and whether they ever did.
func TestFiguresTellWhatPathsCarry(t *testing.T) {
	var s proxy.Stats
	s.Paths = []paths.Path{{Path: "a", Lanes: 1, Rate: 9, Carries: 4, Stood: true}, {Path: "b", Lanes: 1, Rate: 8}}
	d := Figures(s, 0)
	if a, b := d.Paths[0], d.Paths[1]; a.Rate != 9 || *a.Carries != 4 || b.Rate != 8 || *b.Carries != 0 || a.Unopened || !b.Unopened {
		t.Errorf("%+v, %+v", a, b)
	}
}
