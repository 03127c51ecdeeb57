package policy

import (
	"slices"
	"time"
)

// Seeding watches how the copy of disks comes on, and says what to do. It is used before
// every disk was copied once, and after.
type Seeding struct {
	Patience time.Duration // how long nothing may be copied while something is left

	done, least int64     // bytes: copied so far; the least that was left
	moved, shed time.Time // when those last changed for the better
	rests       []rest    // those that ended lately
	early       bool      // the last look was before all was known that there is to copy
}

// rest is a time in which nothing was copied, until something was.
type rest struct {
	took time.Duration
	end  time.Time
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
	if l.Done > s.done && s.cut(l.At) { // no mirror follows what is written in a cut
		s.least, s.shed = l.Remaining, l.At
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

// cut says whether the rest that ends now was a cut: far longer than those that ended just before it began. The last
// one alone does not tell: over a slow path pieces of several disks end in groups. Older ones than seedCatch tell
// nothing: where the copy has come on for so long, a guest that outruns it was found meanwhile.
func (s *Seeding) cut(now time.Time) bool {
	s.rests = slices.DeleteFunc(s.rests, func(r rest) bool { return s.moved.Sub(r.end) > seedCatch })
	took, longest := now.Sub(s.moved), seedStood
	for _, r := range s.rests {
		longest = max(longest, 2*r.took)
	}
	s.rests = append(s.rests, rest{took, now})
	return took > longest
}
