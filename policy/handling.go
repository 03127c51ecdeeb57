package policy

import "time"

const (
	// handlingLook is how long a look at how fast pages are handled lasts.
	handlingLook = 200 * time.Millisecond
	// handlingSpare is how many pages are taken to cost no more than their bytes: 8 MiB, of which each end
	// handles as much in the time that it takes to look at them.
	handlingSpare = 2048
	// handlingFull is the share of what the paths carry from which on they are what is waited for.
	handlingFull = 0.6
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
}

// Handled is a look at a copy: since its beginning so many pages were handled, and so many bytes acknowledged;
// so many pages are left, wherever they are, and the paths can carry goodput bytes per second (0: not known).
type Handled struct {
	At      time.Duration
	Pages   uint64
	Left    uint64
	Acked   int64
	Goodput int64
}

// See takes a look, and says how long what is left will take to handle; 0: not longer than its bytes take.
func (h *Handling) See(l Handled) time.Duration {
	if took := l.At - h.at; took >= handlingLook {
		if h.behind && l.Left >= handlingSpare && l.Pages > h.handled {
			h.learn(float64(l.Pages-h.handled)/took.Seconds(), float64(l.Acked-h.acked)/took.Seconds() >= handlingFull*float64(l.Goodput))
		}
		h.at, h.handled, h.acked, h.behind = l.At, l.Pages, l.Acked, l.Left >= handlingSpare
	}
	if h.rate == 0 || l.Left <= handlingSpare {
		return 0
	}
	return time.Duration(float64(l.Left-handlingSpare) / h.rate * float64(time.Second))
}

// learn takes a rate, in pages per second; full paths show only that it can be had.
func (h *Handling) learn(rate float64, full bool) {
	switch {
	case !full:
		h.rate = rate
	case h.rate > 0:
		h.rate = max(h.rate, rate)
	}
}
