package lab

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"godwit/internal/clock"
	"godwit/lab/scenario"
	"godwit/lab/topo"
	"godwit/lab/wan"
)

// linkFaults are the changes to uplinks that are in force. A link is what its site
// has in the file, with every change in force applied in the order they came.
type linkFaults struct {
	mu    sync.Mutex
	next  int
	inUse []linkFault
}

type linkFault struct {
	number       int
	site, uplink string
	change       func(*wan.Link)
}

// uplinks are what a change is made to; *topo.Topo is one.
type uplinks interface {
	SetLink(site, uplink string, change func(*wan.Link)) error
}

// add puts a change in force; undo takes this one back. On error none is in force.
func (f *linkFaults) add(sites []topo.Site, links uplinks, site, uplink string, change func(*wan.Link)) (undo func() error, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next++
	number := f.next
	f.inUse = append(f.inUse, linkFault{number, site, uplink, change})
	remove := func() error {
		f.inUse = slices.DeleteFunc(f.inUse, func(l linkFault) bool { return l.number == number })
		return f.apply(sites, links, site)
	}
	if err := f.apply(sites, links, site); err != nil {
		return nil, errors.Join(err, remove())
	}
	return func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		return remove()
	}, nil
}

// apply makes every uplink of site what it should be. Where one fails, the others
// are made all the same.
func (f *linkFaults) apply(sites []topo.Site, links uplinks, site string) error {
	var errs []error
	for _, s := range sites {
		if s.Name != site {
			continue
		}
		for _, u := range s.Uplinks {
			want := u.Link
			for _, l := range f.inUse {
				if l.site == site && (l.uplink == u.Name || l.uplink == scenario.AllUplinks) {
					l.change(&want)
				}
			}
			errs = append(errs, links.SetLink(site, u.Name, func(l *wan.Link) { *l = want }))
		}
	}
	return errors.Join(errs...)
}

// linkChange is a change of a link that is taken back some time.
type linkChange struct {
	end    time.Time // when it is to be
	lasts  time.Duration
	undone chan struct{}
}

const (
	// linksAwaited is how much longer a run lasts, when all else is over, for links that are to be as they were.
	linksAwaited = 30 * time.Second
	// heardAwaited is how much longer than that, at the most, for flows that are to be heard again.
	heardAwaited = 5 * time.Second
)

// awaitLinks waits, when all else is over, for links that are soon to be as they were, and then until every flow was
// heard again, for as long as the change lasted at the most: what is lost is sent again after twice the time of the last
// try each time (RFC 6298 §5.5). That has no run meet its time limit: a link that is to be as it was too late for that
// stays as it is.
func (r *run) awaitLinks(ctx context.Context) {
	limit, soon := r.zero.Add(r.w.scenario.End.Timeout-time.Second), time.Now().Add(linksAwaited)
	var since, until time.Time
	r.mu.Lock()
	changes := slices.Clone(r.changes)
	r.mu.Unlock()
	for _, c := range changes {
		if c.end.After(soon) || !c.end.Before(limit) {
			continue
		}
		select {
		case <-c.undone:
		case <-ctx.Done():
			return
		}
		since, until = later(since, c.end), later(until, c.end.Add(min(c.lasts, heardAwaited)))
	}
	if until.After(limit) {
		until = limit
	}
	for time.Now().Before(until) && !r.heardSince(since) && clock.Sleep(ctx, 100*time.Millisecond) {
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// heardSince says whether each connection of the flows, as far as they tell, had a record since then.
func (r *run) heardSince(then time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.flows {
		f.mu.Lock()
		last := f.last.WaitingSince
		f.mu.Unlock()
		if last != 0 && last < then.UnixNano() {
			return false
		}
	}
	return true
}
