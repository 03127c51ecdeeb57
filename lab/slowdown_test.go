package lab

import (
	"math"
	"testing"
	"time"

	"godwit/agent/record"
	"godwit/lab/report"
	"godwit/migration"
	"godwit/vm/guest"
)

// TestSlowdown: a load that wrote half as much while its guest moved got on slower by two. Where that is not known there
// is a reason.
func TestSlowdown(t *testing.T) {
	zero := time.Unix(1000, 0)
	at := func(s float64) time.Time { return zero.Add(time.Duration(s * float64(time.Second))) }
	steady := func(start uint64, wrote uint64, from, to int) (out []loadLook) {
		for s := from; s <= to; s++ {
			out = append(out, loadLook{at(float64(s)), start, wrote + uint64(100*(s-from))})
		}
		return out
	}
	halved := append(steady(7, 1000, -8, 3), loadLook{at(13), 7, 1000 + 1100 + 500}, loadLook{at(14), 7, 1000 + 1100 + 9000})
	for name, c := range map[string]struct {
		looks []loadLook
		since time.Time
		want  float64 // 0: a reason
	}{
		"half as much":                {halved, time.Time{}, 2},
		"a move just before":          {halved, at(1.5), 2},
		"a move that has just ended":  {halved, at(2.5), 0},
		"no load that counts":         {nil, time.Time{}, 0},
		"heard before alone":          {halved[:12], time.Time{}, 0},
		"heard after alone":           {halved[12:], time.Time{}, 0},
		"its program began anew":      {append(steady(7, 1000, -8, 3), loadLook{at(13), 8, 5000}), time.Time{}, 0},
		"nothing written before":      {[]loadLook{{at(1), 7, 9}, {at(3), 7, 9}, {at(13), 7, 10}}, time.Time{}, 0},
		"nothing written meanwhile":   {[]loadLook{{at(1), 7, 8}, {at(3), 7, 9}, {at(13), 7, 9}}, time.Time{}, 0},
		"heard while it was on a way": {append(steady(7, 1000, -8, 3), loadLook{at(8), 7, 2400}, loadLook{at(13), 7, 2600}), time.Time{}, 2},
	} {
		got, why := slowdown(c.looks, c.since, at(3.5), at(12.5))
		if math.Abs(got-c.want) > 1e-9 || (c.want == 0) != (why != "") {
			t.Errorf("%s: %g %q, want %g", name, got, why, c.want)
		}
	}

	// As a run keeps it, and tells it.
	r := &run{opts: Options{Costs: true}, loads: map[string][]loadLook{}}
	for _, look := range halved {
		r.sawLoads("web", look.at, &guest.Counters{Start: look.start, Wrote: look.wrote})
	}
	r.sawLoads("other", at(1), &guest.Counters{Start: 7})
	m := &move{guest: "web", started: map[migration.Phase]time.Time{migration.Copy: at(3.5)},
		report: &record.Report{MemoryDone: at(9).UnixNano(), Handed: at(12.5).UnixNano()}}
	r.moves = []*move{{guest: "other", over: at(3)}, m}
	if out := (report.Migration{}); len(r.loads) != 1 {
		t.Errorf("looks at %v", r.loads)
	} else if r.fillSlowdown(&out, m); out.Slowdown == nil || *out.Slowdown != 2 {
		t.Errorf("%v %q", out.Slowdown, out.WhyNull)
	}
	for _, plain := range []bool{true, false} {
		out := report.Migration{}
		r.opts.Plain = plain
		r.fillSlowdown(&out, &move{guest: "web", report: &record.Report{}})
		if out.Slowdown != nil || out.WhyNull["slowdown"] == "" {
			t.Errorf("plain %v: %v %q", plain, out.Slowdown, out.WhyNull)
		}
	}
}
