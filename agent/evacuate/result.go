package evacuate

import (
	"cmp"
	"slices"

	"godwit/agent/record"
	"godwit/migration"
)

// of is what is known of a guest.
func (e *evacuation) of(name string) Guest {
	e.mu.Lock()
	defer e.mu.Unlock()
	if g, ok := e.guests[name]; ok {
		return *g
	}
	return Guest{Guest: name}
}

// copies are all guests so far.
func (e *evacuation) copies() map[string]Guest {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := map[string]Guest{}
	for name, g := range e.guests {
		out[name] = *g
	}
	return out
}

// set changes what is known of a guest, and tells it where it is something new.
func (e *evacuation) set(name string, change func(*Guest)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	g, ok := e.guests[name]
	if !ok {
		g = &Guest{Guest: name}
		e.guests[name] = g
	}
	before := *g
	change(g)
	if *g != before && e.req.Tell != nil {
		e.req.Tell(*g)
	}
}

// outcome takes a migration's outcome in.
func (e *evacuation) outcome(name string, rep record.Report) {
	e.set(name, func(x *Guest) {
		x.Migration, x.To, x.Outcome = rep.ID, rep.To, rep.Outcome
		if rep.Problem != nil {
			x.Reason = rep.Problem.Text
		}
		if rep.Outcome == migration.InDoubt {
			x.Reason = "in doubt whether it runs on " + rep.To + "; see `godwit recover " + rep.ID + "`"
		}
		if rep.Ended > rep.Requested {
			s := float64(rep.Ended-rep.Requested) / 1e9
			x.TotalS = &s
		}
	})
}

// result is what became of everything, also of what was interrupted.
func (e *evacuation) result() Result {
	out := Result{Host: e.name, DryRun: e.req.DryRun, OK: true, Guests: []Guest{}}
	for _, g := range e.copies() {
		switch {
		case e.req.DryRun:
			out.OK = out.OK && g.Reason == ""
		case !g.Moved():
			out.OK = false
		}
		if !e.req.DryRun && g.Outcome == "" && g.Reason == "" {
			g.Reason = "interrupted before its migration began"
			if g.Migration != "" {
				g.Reason = "migration " + g.Migration + " still runs; `godwit watch " + g.Migration + "` shows it, `godwit abort " + g.Migration + "` calls it off"
			}
		}
		out.Guests = append(out.Guests, g)
	}
	slices.SortFunc(out.Guests, func(a, b Guest) int { return cmp.Compare(a.Guest, b.Guest) })
	return out
}
