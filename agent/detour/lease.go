package detour

import (
	"cmp"
	"time"

	"godwit/agent/config"
	"godwit/internal/clock"
)

// A lease is kept on the disk as the time of its end, by this host's clock. Clocks are
// stepped, and those of two hosts differ: so hosts tell each other what is left of a
// lease, and a step moves the ends of all leases along, also one that came while no agent ran.

// Left is what is left of a detour's lease, at least a second; 0: it has no end.
func (d *Detour) Left() time.Duration {
	if d.Until.IsZero() {
		return 0
	}
	return max(clock.Until(d.Until), time.Second)
}

// LeaseFor makes the lease alone keep the detour, for that long; 0: for good.
func (d *Detour) LeaseFor(left time.Duration) {
	d.Awaited() // or an agent ended before it did that
	d.Leased, d.Until, d.For = true, time.Time{}, left
	if left > 0 {
		d.Until = clock.Now().Add(left)
	}
}

// byClock has the times that are written be by the clock as it was when they were right last. mu is held.
func (s *Store) byClock() {
	for _, d := range s.byID {
		d.Boot, d.Booted = clock.Boot(), s.steps.wall.Add(-s.steps.since)
	}
}

// caughtUp moves times that were read along with what the clock was stepped by since they were written. Of a step since
// the host has booted anew nothing is known.
func (s *Store) caughtUp() {
	for _, d := range s.byID {
		if step := s.steps.wall.Add(-s.steps.since).Sub(d.Booted); d.Boot != "" && d.Boot == clock.Boot() && step.Abs() >= leastStep {
			d.move(step)
		}
	}
}

// move has a detour's times be by a clock that was stepped.
func (d *Detour) move(step time.Duration) {
	d.Up = d.Up.Add(step)
	for _, end := range []*time.Time{&d.Until, &d.Tunnel.Lease} {
		if !end.IsZero() {
			*end = end.Add(step)
		}
	}
}

// believe has times that were read be such as can be: a host may boot by a clock that is hours or years behind, and set
// right later, with which each lease would be moved along. None has more left than it was leased for, and nothing was
// made in the future.
func (s *Store) believe(now time.Time) {
	ahead := time.Duration(0)
	for _, d := range s.byID {
		if most := now.Add(cmp.Or(d.For, config.MostLease)); d.Until.After(most) { // agents of before did not say for how long
			d.Until = most
		}
		ahead = max(ahead, d.Up.Sub(now))
	}
	for _, d := range s.byID {
		d.Up = d.Up.Add(-ahead) // all: the older one of two ways serves
	}
}

// now is the wall clock, by which the times of all detours are right: when it was stepped
// since the last look, they are moved along first, so that what is leased by the new time is
// not moved as well. mu is held.
func (s *Store) now() time.Time {
	now := clock.Now()
	step := s.steps.see(now, clock.SinceBoot())
	if step == 0 {
		return now
	}
	for _, d := range s.byID {
		d.move(step)
	}
	s.stepped += step
	return now
}

// Look is a detour as it is, and the time by which it is; false: there is none.
func (s *Store) Look(id string) (Detour, time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	d, ok := s.byID[id]
	if !ok {
		return Detour{}, now, false
	}
	return d.clone(), now, true
}

// Shifted says by how much the clock was stepped since it was last asked, and writes down
// what was moved along. On error the next change does.
func (s *Store) Shifted() (time.Duration, error) {
	s.mu.Lock()
	s.now()
	step := s.stepped
	s.stepped = 0
	if step != 0 {
		s.made++
	}
	change := s.made
	s.mu.Unlock()
	if step == 0 {
		return 0, nil
	}
	return step, s.write(change)
}

// leastStep is what a clock must jump by to have been stepped; a slower change is its
// being set right.
const leastStep = 2 * time.Second

// clockSteps notices steps of the wall clock, by the one that counts since the host has booted: a host that sleeps is
// not stepped.
type clockSteps struct {
	wall  time.Time
	since time.Duration
}

// see compares what passed on both clocks since it was last called; the result is how
// far the wall clock has jumped, 0 if it has not.
func (c *clockSteps) see(wall time.Time, since time.Duration) time.Duration {
	before := *c
	c.wall, c.since = wall, since
	if before.wall.IsZero() {
		return 0
	}
	step := wall.Sub(before.wall) - (since - before.since)
	if step.Abs() < leastStep {
		return 0
	}
	return step
}
