package policy

import "time"

// Seeding watches how the copy of disks comes on, and says what to do. It is used before
// every disk was copied once, and after.
type Seeding struct {
	Patience time.Duration // how long nothing may be copied while something is left

	done, least int64         // bytes: copied so far; the least that was left
	moved, shed time.Time     // when those last changed for the better
	stood       time.Duration // for how long nothing was copied before something last was
	early       bool          // the last look was before all was known that there is to copy
}

// SeedLook is one look at all disks of a migration together.
type SeedLook struct {
	At        time.Time
	Done      int64 // bytes copied, those that were written again included
	Remaining int64 // bytes that differ
	Ready     bool  // every disk was copied once
	Early     bool  // of a disk it is not known yet how much there is to copy
}

// SeedVerdict is what to do after a look.
type SeedVerdict string

// The verdicts.
const (
	SeedWait    SeedVerdict = "wait"
	SeedBlock   SeedVerdict = "block"   // the guest writes faster than the copy follows: let its writes wait
	SeedStalled SeedVerdict = "stalled" // nothing is copied any more
)

const (
	// seedCatch is how long a mirror may take to get further than ever before.
	seedCatch = 3 * time.Second
	// seedStood is for how long nothing is copied in a cut, at least. Over a slow path that is so time and again.
	seedStood = time.Second
	// seedSmall is what is in flight: so much may always differ. Before every disk was
	// copied once it counts all the same, because QEMU waits for a moment without any.
	seedSmall = 1 << 20
)

// See takes a look in.
func (s *Seeding) See(l SeedLook) SeedVerdict {
	if s.moved.IsZero() {
		s.done, s.least, s.moved, s.shed, s.early = l.Done, l.Remaining, l.At, l.At, l.Early
		return SeedWait
	}
	if s.early { // what was left then is no measure
		s.least, s.shed, s.early = l.Remaining, l.At, l.Early
	}
	if l.Done > s.done {
		stood := l.At.Sub(s.moved)
		if stood > seedStood && stood > 2*s.stood { // no mirror follows what is written in a cut
			s.least, s.shed = l.Remaining, l.At
		}
		s.stood = stood
	}
	if l.Done > s.done || l.Remaining == 0 {
		s.done, s.moved = l.Done, l.At
	}
	if l.Remaining < s.least || l.Remaining == 0 || l.Ready && l.Remaining <= seedSmall {
		s.least, s.shed = l.Remaining, l.At
	}
	switch {
	case l.At.Sub(s.moved) > s.Patience:
		return SeedStalled
	case l.At.Sub(s.shed) > seedCatch && l.At.Sub(s.moved) < seedCatch:
		return SeedBlock
	}
	return SeedWait
}
