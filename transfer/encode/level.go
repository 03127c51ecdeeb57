package encode

import (
	"time"

	"godwit/transfer/pages"
)

// Rate is what a level does with the data at hand.
type Rate struct {
	Speed float64 // bytes of guest memory per second that one core codes
	Ratio float64 // bytes of guest memory per byte of body
}

const (
	// preference is by how much a level that works more has to be better.
	preference = 1.03
	// cheap is how many times faster than the link a level has to code to be taken although it
	// gains nothing now: of memory that is a mixture of text and noise what comes next may be text, and a
	// reference to what the destination has. It may be worse by a hundredth, which is what samples differ by.
	cheap, noWorse = 10, 0.99
)

// Choose returns the level that moves most guest memory: a level moves what the cores code
// or what the link carries of it, whichever is less. link is in bytes per second, 0 if not
// known yet; cores is how many are free, a fraction where they are shared. A level whose
// rate is not known (zero) is not chosen. Of levels that move the same the highest is chosen that
// is cheap, up to zstd's default, and Off where none is.
func Choose(link, cores float64, rates [Levels]Rate) Level {
	if link <= 0 {
		return S2
	}
	best, most := Off, moved(link, cores, rates[Off])
	for level := S2; int(level) < Levels; level++ {
		got := moved(link, cores, rates[level])
		switch {
		case got > most*preference:
			best, most = level, got
		case level <= Zstd3 && rates[level].Speed*cores >= cheap*link && got >= most*noWorse:
			best = level
		}
	}
	return best
}

func moved(link, cores float64, r Rate) float64 { return min(r.Speed*cores, r.Ratio*link) }

// Meter follows what the level in use does with the frames as they come, and compares the others with it now and then,
// each on the same frame: frames differ by far more than levels do. It is for one goroutine.
type Meter struct {
	link  float64 // as last given
	cores float64
	inUse Level    // that Choose returned last
	now   measured // what that does, lately
	cold  bool     // the next frame finds others' tables in the caches, and says nothing of those after it

	spent float64 // seconds that frames took, coding or sending, since the last trial
	trial Level   // last compared

	// tried is what a level makes of a byte of such memory, for comparison with what the others do. Zero: it was not
	// compared, and is as usual.
	tried [Levels]cost
}

type measured struct{ in, out, seconds float64 }

// cost is of a byte of guest memory.
type cost struct{ out, seconds float64 }

// Packed is what a level made of the pages of one frame, and how long that took.
type Packed struct {
	Bytes uint64
	Took  time.Duration
}

const (
	// fading is the weight that a measurement loses with each new one.
	fading = 0.9
	// trialShare is how much of the time goes into trials.
	trialShare = 0.02
	// trialPacks is how often either level packs a frame for a trial. What it takes the first time, with cold caches,
	// is not what counts: on a busy machine it was 1.5 times as long, and a level that works more than the one in use
	// was never good enough.
	trialPacks = 2
	// learning is the weight of a new comparison.
	learning = 0.3
)

// Rates measured on guests' memory stand in until a level was used, or compared with one that is: they are low.
var usual = [Levels]Rate{Off: {2e9, 1}, S2: {600e6, 1.7}, Zstd1: {250e6, 2}, Zstd3: {120e6, 2.2}, Zstd7: {50e6, 2.3}}

// Add counts a frame that took so long to code. Frames of which less than half was
// compressed, or could have been, say nothing of levels and are left out.
func (m *Meter) Add(level Level, c Counts, took time.Duration) {
	if m.link > 0 {
		m.spent += max(took.Seconds()/m.cores, float64(c.Out)/m.link)
	}
	in := packable(c)
	if in == 0 || took <= 0 || level != m.inUse {
		return
	}
	if m.cold && level != Off {
		m.cold = false
		return
	}
	m.now.in = m.now.in*fading + in
	m.now.out = m.now.out*fading + float64(c.Bytes[pages.Batch]+c.Bytes[pages.Raw])
	m.now.seconds = m.now.seconds*fading + took.Seconds()
}

// packable is how much of a frame was packed, or could have been; 0: less than half of it, which says nothing of levels.
func packable(c Counts) float64 {
	in := float64(c.Pages[pages.Batch]+c.Pages[pages.Raw]) * pages.Size
	if in < float64(c.In)/2 {
		return 0
	}
	return in
}

// Trial returns a level that is to be compared with the one in use on the frame of these counts, the last one; not often.
func (m *Meter) Trial(c Counts) (Level, bool) {
	if m.link <= 0 || packable(c) == 0 {
		return 0, false
	}
	rates := m.Rates()
	next := after(m.trial)
	if next == Zstd7 && rates[Zstd3].Speed*m.cores < moved(m.link, m.cores, rates[m.inUse]) {
		next = after(next) // it is slower still
	}
	if next == m.inUse {
		next = after(next)
	}
	packs := trialPacks * pages.MaxPages * pages.Size * (1/rates[next].Speed + 1/rates[m.inUse].Speed)
	if m.spent*trialShare < packs/m.cores {
		return 0, false
	}
	m.spent, m.trial, m.cold = 0, next, true
	return next, true
}

// after is the level to be tried after another. Off is known without a trial.
func after(l Level) Level {
	if int(l) == Levels-1 {
		return S2
	}
	return l + 1
}

// Compare notes what a level and the one in use made of the same frame, which took so long to code in all.
func (m *Meter) Compare(level Level, c Counts, took time.Duration, tried, inUse Packed) {
	if packable(c) == 0 || inUse.Bytes == 0 || took <= 0 {
		return
	}
	rest := max(took-inUse.Took, 0) // what takes as long at any level
	here, there := m.cost(m.inUse), m.cost(level)
	out := here.out * float64(tried.Bytes) / float64(inUse.Bytes)
	seconds := here.seconds * (rest + tried.Took).Seconds() / max(took, inUse.Took).Seconds()
	m.tried[level] = cost{there.out + (out-there.out)*learning, there.seconds + (seconds-there.seconds)*learning}
}

// cost is what is known of a level from comparisons.
func (m *Meter) cost(level Level) cost {
	if m.tried[level].seconds > 0 {
		return m.tried[level]
	}
	return cost{1 / usual[level].Ratio, 1 / usual[level].Speed}
}

// costs are of all levels, by what the one in use makes of the data at hand.
func (m *Meter) costs() (all [Levels]cost) {
	was, now := m.cost(m.inUse), m.cost(m.inUse)
	if m.now.in > 0 {
		now = cost{m.now.out / m.now.in, m.now.seconds / m.now.in}
	}
	for i := range all {
		c := m.cost(Level(i)) //nolint:gosec // below Levels
		all[i] = cost{min(c.out*now.out/was.out, 1), c.seconds * now.seconds / was.seconds}
	}
	all[Off].out = 1
	return all
}

// Rates returns what is known of each level.
func (m *Meter) Rates() (rates [Levels]Rate) {
	for i, c := range m.costs() {
		rates[i] = Rate{Speed: 1 / c.seconds, Ratio: 1 / c.out}
	}
	return rates
}

// Next returns the level for the next frame.
func (m *Meter) Next(link, cores float64) Level {
	m.link, m.cores = link, cores
	if best := Choose(link, cores, m.Rates()); best != m.inUse {
		m.tried = m.costs() // what it was in use for is forgotten, and what that said of the others is not
		m.inUse, m.cold = best, true
		c := m.tried[best]
		m.now.out, m.now.seconds = m.now.in*c.out, m.now.in*c.seconds
	}
	return m.inUse
}
