package policy

import "time"

const (
	// handlingLook is how long a look at how fast pages are handled lasts.
	handlingLook = 200 * time.Millisecond
	// handlingLeast is how many pages must be left for what is handled to tell how fast both ends are: 8 MiB.
	handlingLeast = 2048
	// handlingSpare is how long what is left may take to handle at no cost: it is handled while it is looked at.
	handlingSpare = 10 * time.Millisecond
	// handlingFull is the share of what the paths carry from which on they are what is waited for.
	handlingFull = 0.6
	// handlingKept is how long a rate counts that no look has shown again: both ends have kept up with the guest since.
	handlingKept = 2 * time.Second
)

// Handling follows how many pages both ends of a copy handle, per second, where that, and not the paths, is
// what a copy waits for: pages that the destination has already cost a few bytes each, but somebody must read,
// compare, look up and write them. The zero value has seen nothing.
type Handling struct {
	at      time.Duration
	handled uint64
	acked   int64
	behind  bool // there was enough to handle at the beginning
	rate    float64
	learnt  time.Duration // when
}

// Handled is a look at a copy: since its beginning so many pages were handled, and so many bytes acknowledged;
// so many pages are left, wherever they are, of which some are kept back for the pause, and the paths can carry goodput
// bytes per second (0: not known). A look whose time is before that of the last begins anew, and keeps what was learnt.
type Handled struct {
	At      time.Duration
	Pages   uint64
	Left    uint64
	Kept    uint64 // of Left: nobody handles them yet
	Acked   int64
	Goodput int64
}

// See takes a look, and says how long what is left will take to handle; 0: not longer than its bytes take.
func (h *Handling) See(l Handled) time.Duration {
	behind := l.Left-min(l.Left, l.Kept) >= handlingLeast
	if l.At < h.at {
		h.learnt -= h.at
		h.at, h.behind = 0, false
	}
	if took := l.At - h.at; took >= handlingLook {
		if h.behind && behind && l.Pages > h.handled {
			h.learn(float64(l.Pages-h.handled)/took.Seconds(), float64(l.Acked-h.acked)/took.Seconds() >= handlingFull*float64(l.Goodput), l.At)
		}
		h.at, h.handled, h.acked, h.behind = l.At, l.Pages, l.Acked, behind
	}
	if h.rate == 0 || l.At-h.learnt > handlingKept {
		return 0
	}
	return max(0, seconds(float64(l.Left)/h.rate)-handlingSpare)
}

// learn takes a rate, in pages per second; full paths show only that it can be had.
func (h *Handling) learn(rate float64, full bool, at time.Duration) {
	switch {
	case !full:
		h.rate, h.learnt = rate, at
	case h.rate > 0:
		h.rate, h.learnt = max(h.rate, rate), at
	}
}
