package encode

import (
	"bytes"
	"time"

	"godwit/transfer/pages"
)

// What a guest's pages will be coded to is foreseen by coding some of them, each with its neighbours, as a Coder does whose
// destination has none of them.

// triedFrames of a sample are coded with each level, to choose one.
const triedFrames = 2

// Best is the level that moves most of such pages over a link of so many bytes per second (0: not known), coded by a thread
// that gets such a share of a processor. clock is the time that the calling thread has worked.
func Best(sample [][]byte, link, cores float64, clock func() time.Duration) Level {
	frames := framesOf(sample, nil)
	coder := NewCoder(nil, nil)
	rates := usual
	for level := S2; int(level) < Levels; level++ {
		var sum measured
		for _, f := range frames[:min(len(frames), triedFrames)] {
			coder.Encode(nil, &f, level) // the first time takes longer
			begun := clock()
			_, counts := coder.Encode(nil, &f, level)
			if in := packable(counts); in > 0 {
				sum.in, sum.out = sum.in+in, sum.out+float64(counts.Bytes[pages.Batch]+counts.Bytes[pages.Raw])
				sum.seconds += (clock() - begun).Seconds()
			}
		}
		if sum.in > 0 {
			rates[level] = Rate{Speed: sum.in / sum.seconds, Ratio: sum.in / sum.out}
		}
	}
	return Choose(link, cores, rates)
}

// Foresee codes pages with a level. before are the same pages as the destination has them, of which those that have
// changed go again; nil: it has none. What it tells is In and Out.
func Foresee(sample, before [][]byte, level Level) (sum Counts) {
	coder := NewCoder(nil, nil)
	for _, f := range framesOf(sample, before) {
		_, counts := coder.Encode(nil, &f, level)
		sum.In += counts.In
		sum.Out += counts.Out
	}
	return sum
}

// framesOf makes frames of pages that are not zeros (nil).
func framesOf(sample, before [][]byte) (out []pages.Frame) {
	for i, data := range sample {
		if data == nil {
			continue
		}
		p := pages.Page{Number: uint64(i), Data: data} //nolint:gosec // not negative
		if before != nil {
			if bytes.Equal(before[i], data) {
				continue
			}
			p.Base, p.Landed, p.Version = before[i], true, 1
		}
		if n := len(out); n == 0 || len(out[n-1].Pages) == pages.MaxPages {
			out = append(out, pages.Frame{Number: 2})
		}
		last := &out[len(out)-1]
		last.Pages = append(last.Pages, p)
	}
	return out
}
