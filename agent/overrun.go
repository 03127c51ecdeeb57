package agent

import (
	"fmt"
	"slices"
	"time"

	"godwit/migration"
)

// stoodStill is for how long the guest did: by its own counter, or, where that was not heard, by the clocks
// of its hosts.
func (r *Report) stoodStill() time.Duration {
	if d, counted := r.VMDowntime(); counted {
		return d
	}
	if r.Paused == 0 || r.Resumed == 0 {
		return 0
	}
	return time.Duration(r.Resumed - r.Paused)
}

// step is the first of a name that began after the guest was stopped, as far as that is known.
func (r *Report) step(name string) (Step, bool) {
	i := slices.IndexFunc(r.Critical, func(s Step) bool { return s.Name == name && s.At >= r.Paused })
	if i < 0 {
		return Step{}, false
	}
	return r.Critical[i], true
}

func (s Step) took() time.Duration { return time.Duration(s.MS * float64(time.Millisecond)) }

// longest is what took most of the time for which the guest stood still, by the steps of both hosts.
func (r *Report) longest() (what string, took time.Duration) {
	see := func(name string, d time.Duration) {
		if d > took {
			what, took = name, d
		}
	}
	stopped := r.Paused
	for _, s := range r.Critical {
		switch s.Name {
		case stepStop:
			see("stopping it", s.took())
		case stepDisks:
			see("its disks, until they were in sync,", s.took())
			stopped = max(stopped, s.At+int64(s.took()))
		}
	}
	loaded, known := r.step(stepLoaded)
	if known && stopped != 0 {
		see("the last of its memory and its devices", time.Duration(loaded.At-stopped))
	}
	if start, begun := r.step(stepStart); begun {
		if known {
			see("handing it over", time.Duration(start.At-loaded.At))
		}
		see("starting it", start.took())
	}
	return what, took
}

// noteOverrun says that a guest stood still for longer than it was to, and of what it was most. Who asked for
// stop-and-copy was told before.
func (m *outgoing) noteOverrun() {
	rep := m.rec.snapshot()
	d := rep.stoodStill()
	if m.state.Outcome != migration.Completed || m.plan.Mode == "stopcopy" || d <= m.plan.Downtime {
		return
	}
	text := fmt.Sprintf("the guest stood still for %v, its downtime budget was %v", d.Round(time.Millisecond), m.plan.Downtime)
	if what, took := rep.longest(); took > 0 {
		text += fmt.Sprintf(": %s took %v of it", what, min(took, d).Round(time.Millisecond))
	}
	m.rec.noteOnce(text)
}
