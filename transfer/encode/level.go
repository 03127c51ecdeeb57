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

// Meter measures the levels on the frames as they come, and now and then tries one that is
// not in use. It is for one goroutine.
type Meter struct {
	level [Levels]measured
	link  float64 // as last given
	cores float64
	spent float64 // seconds that frames took, coding or sending, since the last trial
	trial Level   // last tried
	left  int     // frames of that trial to come
	inUse Level   // that Choose returned last
	tries bool    // the last frame's level is trial, and not inUse
	last  Level   // of the last frame that says something of levels

	// size is what a level packs pages to, compared with what the others pack the same ones to: frames differ by
	// far more than levels do. 0: it was not compared, and is as usual.
	size [Levels]float64
}

type measured struct {
	in, out, seconds float64
}

const (
	// fading is the weight that a measurement loses with each new one, fadingTried where they come seconds apart.
	fading, fadingTried = 0.9, 0.7
	// trialShare is how much of the time goes into trials.
	trialShare = 0.03
	// trialFrames are coded in a trial. The first of a level after another's finds nothing in caches: on a busy machine it took
	// 1.5 times as long as the next ones, and no level that works more than the one in use was ever good enough.
	trialFrames = 2
	// learning is the weight of a new comparison.
	learning = 0.3
)

// Rates measured on guests' memory stand in until a level was used: they are low.
var usual = [Levels]Rate{Off: {2e9, 1}, S2: {600e6, 1.7}, Zstd1: {250e6, 2}, Zstd3: {120e6, 2.2}, Zstd7: {50e6, 2.3}}

// Add counts a frame that took so long to code. Frames of which less than half was
// compressed, or could have been, say nothing of levels and are left out.
func (m *Meter) Add(level Level, c Counts, took time.Duration) {
	if m.link > 0 {
		m.spent += max(took.Seconds()/m.cores, float64(c.Out)/m.link)
	}
	in := packable(c)
	if in == 0 || took <= 0 {
		return
	}
	l, cold := &m.level[level], level != m.last
	if m.last = level; cold && level >= Zstd1 {
		return
	}
	keep := fading
	if level != m.inUse {
		keep = fadingTried
	}
	l.in = l.in*keep + in
	l.out = l.out*keep + float64(c.Bytes[pages.Batch]+c.Bytes[pages.Raw])
	l.seconds = l.seconds*keep + took.Seconds()
}

// Against is the level that is in use, where this one was tried of Next's last frame: what that would have packed the
// frame to is for Compare.
func (m *Meter) Against(level Level) (inUse Level, ok bool) {
	return m.inUse, m.tries && level == m.trial && m.inUse != Off
}

// Compare notes what the frame of a trial came to, and to how many bytes the level in use would have packed its pages.
func (m *Meter) Compare(c Counts, inUse uint64) {
	if packable(c) == 0 || inUse == 0 {
		return
	}
	size := m.relative(m.inUse) * float64(c.Bytes[pages.Batch]+c.Bytes[pages.Raw]) / float64(inUse)
	m.size[m.trial] = m.relative(m.trial) + (size-m.relative(m.trial))*learning
}

// packable is how much of a frame was packed, or could have been; 0: less than half of it, which says nothing of levels.
func packable(c Counts) float64 {
	in := float64(c.Pages[pages.Batch]+c.Pages[pages.Raw]) * pages.Size
	if in < float64(c.In)/2 {
		return 0
	}
	return in
}

func (m *Meter) relative(level Level) float64 {
	if m.size[level] > 0 {
		return m.size[level]
	}
	return 1 / usual[level].Ratio
}

// Rates returns what is known of each level.
func (m *Meter) Rates() [Levels]Rate {
	rates := usual
	for i, l := range m.level {
		if l.in > 0 {
			rates[i] = Rate{Speed: l.in / l.seconds, Ratio: l.in / l.out}
		}
	}
	if m.inUse == Off || m.level[m.inUse].in == 0 {
		return rates
	}
	for level := S2; int(level) < Levels; level++ {
		rates[level].Ratio = rates[m.inUse].Ratio * m.relative(m.inUse) / m.relative(level)
	}
	return rates
}

// Next returns the level for the next frame: Choose's, or one to be tried.
func (m *Meter) Next(link, cores float64) Level {
	m.link, m.cores, m.tries = link, cores, false
	rates := m.Rates()
	best := Choose(link, cores, rates)
	m.inUse = best
	if link <= 0 {
		return best
	}
	if m.left > 0 && m.trial != best {
		m.left, m.tries = m.left-1, true
		return m.trial
	}
	next := after(m.trial)
	if next == Zstd7 && rates[Zstd3].Speed*cores < moved(link, cores, rates[best]) {
		next = after(next) // it is slower still
	}
	if next == best {
		next = after(next)
	}
	if cost := trialFrames * pages.MaxPages * pages.Size / moved(link, cores, rates[next]); m.spent*trialShare < cost {
		return best
	}
	m.spent, m.trial, m.tries, m.left = 0, next, true, trialFrames-1
	return next
}

// after is the level to be tried after another. Off is known without a trial.
func after(l Level) Level {
	if int(l) == Levels-1 {
		return S2
	}
	return l + 1
}
