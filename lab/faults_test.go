package lab

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"godwit/lab/scenario"
	"godwit/lab/topo"
	"godwit/lab/traffic"
	"godwit/lab/wan"
)

// wires are uplinks in memory, by "site/uplink".
type wires struct {
	now    map[string]wan.Link
	broken string // this one cannot be set to a rate of 1
}

func (w *wires) SetLink(site, uplink string, change func(*wan.Link)) error {
	key := site + "/" + uplink
	next := w.now[key]
	change(&next)
	if key == w.broken && next.Rate == 1 {
		return errors.New("its process is gone")
	}
	w.now[key] = next
	return nil
}

var faultSites = []topo.Site{
	{Name: "paris", Uplinks: []topo.Uplink{{Name: "a", Link: wan.Link{Rate: 100, Delay: time.Second}}, {Name: "b", Link: wan.Link{Rate: 50}}}},
	{Name: "rome", Uplinks: []topo.Uplink{{Name: "a", Link: wan.Link{Rate: 70}}}},
}

func cut(l *wan.Link)                     { l.Cut = wan.CutBoth }
func slow(rate int64) func(l *wan.Link)   { return func(l *wan.Link) { l.Rate = rate } }
func loss(loss float64) func(l *wan.Link) { return func(l *wan.Link) { l.Loss = loss } }

func TestLinkFaultsCombine(t *testing.T) {
	var f linkFaults
	w := &wires{now: map[string]wan.Link{"paris/a": faultSites[0].Uplinks[0].Link, "paris/b": faultSites[0].Uplinks[1].Link, "rome/a": faultSites[1].Uplinks[0].Link}}
	add := func(site, uplink string, change func(*wan.Link)) func() error {
		t.Helper()
		undo, err := f.add(faultSites, w, site, uplink, change)
		if err != nil {
			t.Fatal(err)
		}
		return undo
	}
	want := func(a, b wan.Link) {
		t.Helper()
		all := map[string]wan.Link{"paris/a": a, "paris/b": b, "rome/a": {Rate: 70}}
		if diff := cmp.Diff(all, w.now); diff != "" {
			t.Fatal(diff)
		}
	}
	undone := func(undo func() error) {
		t.Helper()
		if err := undo(); err != nil {
			t.Fatal(err)
		}
	}
	slowed := add("paris", "a", slow(10))
	want(wan.Link{Rate: 10, Delay: time.Second}, wan.Link{Rate: 50})
	cutAll := add("paris", scenario.AllUplinks, cut)
	want(wan.Link{Rate: 10, Delay: time.Second, Cut: wan.CutBoth}, wan.Link{Rate: 50, Cut: wan.CutBoth})
	slower := add("paris", "a", slow(5)) // the last that came wins
	lossy := add("paris", "b", loss(0.5))
	want(wan.Link{Rate: 5, Delay: time.Second, Cut: wan.CutBoth}, wan.Link{Rate: 50, Cut: wan.CutBoth, Loss: 0.5})
	undone(cutAll) // in another order than they came
	want(wan.Link{Rate: 5, Delay: time.Second}, wan.Link{Rate: 50, Loss: 0.5})
	undone(slowed)
	want(wan.Link{Rate: 5, Delay: time.Second}, wan.Link{Rate: 50, Loss: 0.5})
	undone(slower)
	undone(slower) // twice is once
	undone(lossy)
	want(wan.Link{Rate: 100, Delay: time.Second}, wan.Link{Rate: 50})
}

// TestLinkFaultsFail: a change that could not be made is not in force later.
func TestLinkFaultsFail(t *testing.T) {
	var f linkFaults
	w := &wires{now: map[string]wan.Link{}, broken: "paris/b"}
	if _, err := f.add(faultSites, w, "paris", scenario.AllUplinks, slow(1)); err == nil {
		t.Fatal("no error")
	}
	if w.now["paris/a"].Rate != 100 || len(f.inUse) != 0 {
		t.Fatalf("%+v, in force %d", w.now, len(f.inUse))
	}
	if undo, err := f.add(faultSites, w, "paris", "b", cut); err != nil || undo() != nil {
		t.Fatal(err)
	}
}

// A link whose delay becomes shorter than its jitter is still a link.
func TestDegradeKeepsALink(t *testing.T) {
	delay, rate, lossy := time.Millisecond, int64(5e6), 0.5
	l := wan.Link{Rate: 1e6, Delay: 10 * time.Millisecond, Jitter: 4 * time.Millisecond}
	degrade(&scenario.Degrade{Delay: &delay, Rate: &rate, Loss: &lossy})(&l)
	if want := (wan.Link{Rate: 5e6, Delay: delay, Jitter: delay, Loss: 0.5}); l != want || l.Check() != nil {
		t.Errorf("%+v, %v", l, l.Check())
	}
}

// TestTheEndWaitsForALink: a run does not end, and judge its connections, while a link is changed for a short time yet;
// nor, for some seconds, before they can be heard again. None meets its limit for that, nor waits for long.
func TestTheEndWaitsForALink(t *testing.T) {
	at := func(at int, step scenario.Step) scenario.Step {
		step.At.Time = time.Duration(at) * time.Second
		return step
	}
	cut := func(lasts int) scenario.Step {
		return scenario.Step{Cut: &scenario.Cut{Site: "a", Uplink: scenario.AllUplinks, For: time.Duration(lasts) * time.Second}}
	}
	slowed := scenario.Step{Degrade: &scenario.Degrade{Site: "a", Uplink: scenario.AllUplinks, For: 10 * time.Second}}
	const silent = -1
	for _, c := range []struct {
		name     string
		step     scenario.Step
		commands int // that do not end
		heard    int // until when a flow's connections are silent, s; 0: there is none, silent: for ever
		want     int // how long the run lasts at the least, s, and no second more
	}{
		{"for good", cut(0), 0, silent, 0},
		{"cut", cut(10), 0, 0, 10},
		{"slowed", slowed, 0, 0, 10},
		{"cut, and heard a while later", cut(10), 0, 13, 13},
		{"cut, and heard no more", cut(10), 0, silent, 15},
		{"cut for a moment, and heard no more", cut(2), 0, silent, 4},
		{"cut for longer than a run is worth", cut(31), 0, silent, 0},
		{"cut beyond its limit", at(45, cut(15)), 0, 0, 45},
		{"cut, and heard no more, near its limit", at(45, cut(12)), 0, silent, 59},
		{"cut beside a command that runs on", cut(40), 1, silent, 45},
		{"cut for good beside a command that runs on", cut(0), 1, silent, 30},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := aRun(c.step)
			r.commands = c.commands
			f := &flowTrace{}
			if c.heard != 0 {
				f.see(traffic.Sample{WaitingSince: 1})
				r.flows = map[string]*flowTrace{"ticks": f}
			}
			if c.heard > 0 {
				time.AfterFunc(time.Duration(c.heard)*time.Second, func() { f.see(traffic.Sample{WaitingSince: time.Now().UnixNano()}) })
			}
			timedOut, want := r.carryOut(t.Context()), time.Duration(c.want)*time.Second
			if lasted := r.ended.Sub(r.zero); timedOut || lasted < want || lasted > want+time.Second {
				t.Errorf("%s: it lasted %v, at its limit: %v; want %v", c.name, lasted, timedOut, want)
			}
		})
	}
}
