package proxy

import (
	"testing"
	"time"
)

const ms = time.Millisecond

// work adds pieces of work for so long, each after a pause.
func (s *share) work(last, pause, ran time.Duration, worked ...time.Duration) {
	for i, at := 0, time.Duration(0); at < last; i++ {
		w := worked[i%len(worked)]
		s.add(ran, w, pause+w)
		at += pause + w
	}
}

// TestShare: a thread that is kept waiting in a few frames of many gets what it gets of the
// time, not what most frames look like; one that has time left is not poor for having waited.
func TestShare(t *testing.T) {
	undisturbed := []time.Duration{ms, ms, ms, ms, ms, ms, ms, ms, ms}
	for name, c := range map[string]struct {
		ran, pause time.Duration // of each frame, before each
		worked     []time.Duration
		low, high  float64
	}{
		"alone, always at work":                            {ms, 0, []time.Duration{ms}, 0.99, 1},
		"half, always at work":                             {ms, 0, []time.Duration{2 * ms}, 0.49, 0.51},
		"always at work, of ten frames one waits":          {ms, 0, append(undisturbed, 91*ms), 0.05, 0.2},
		"alone, with little to do":                         {ms, 9 * ms, []time.Duration{ms}, 0.3, 0.5},
		"with little to do, of ten frames one waits":       {ms, 50 * ms, append(undisturbed, 91*ms), 0.2, 0.35},
		"always at work, and never gets any":               {0, 0, []time.Duration{50 * ms}, leastShare, leastShare},
		"alone, where the clock of the thread runs faster": {2 * ms, 0, []time.Duration{ms}, 0.99, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var s share
			if got := s.cores(); got != idleShare {
				t.Errorf("before all %v", got)
			}
			s.work(10*time.Second, c.pause, c.ran, c.worked...)
			if got := s.cores(); got < c.low || got > c.high {
				t.Errorf("%.3f, want %v to %v", got, c.low, c.high)
			}
		})
	}
}

// TestShareForgets: one long wait does not count for long, however little there was to do since.
func TestShareForgets(t *testing.T) {
	var s share
	s.work(time.Second, 0, ms, 20*ms)
	if got := s.cores(); got > 0.07 {
		t.Fatalf("busy: %.3f", got)
	}
	s.work(3*time.Second, 4*ms, ms, ms)
	if got := s.cores(); got < 0.4 {
		t.Errorf("3 s later, nearly alone: %.3f", got)
	}
}

// TestShareOfMoreWork: a thread whose pieces of work wait 5 ms each for the processor, however long they are, would get
// more of it with more to do; once it was seen that it does not, that is believed for a while.
func TestShareOfMoreWork(t *testing.T) {
	const wait = 5 * ms
	var s share
	s.work(5*time.Second, 3*ms, ms/2, ms/2+wait)
	if got := s.cores(); got != idleShare {
		t.Errorf("with time left: %.3f", got)
	}
	s.work(5*time.Second, 0, 2*ms, 2*ms+wait) // with more work
	if got := s.cores(); got < 0.27 || got > 0.3 {
		t.Errorf("with none left: %.3f", got)
	}
	s.work(5*time.Second, 0, ms, ms+9*wait) // other programs take more
	s.work(5*time.Second, 5*ms, ms/2, ms/2+wait)
	if got := s.cores(); got > 0.2 {
		t.Errorf("with time left again: %.3f", got)
	}
	s.work(fullMemory*time.Second, 5*ms, ms/2, ms/2+wait)
	if got := s.cores(); got < idleShare {
		t.Errorf("long after: %.3f", got)
	}
}

// TestShareOfSpare: a thread with time left would get what nobody uses, beside what it has; one without time left
// would get that already.
func TestShareOfSpare(t *testing.T) {
	s := share{spare: 0.5}
	s.work(5*time.Second, 9*ms, ms, ms)
	if got := s.cores(); got < 0.59 || got > 0.61 {
		t.Errorf("with time left: %.3f", got)
	}
	s.spare = 7
	if got := s.cores(); got != 1 {
		t.Errorf("on a machine with processors to spare: %.3f", got)
	}
	s.work(5*time.Second, 0, ms, 5*ms)
	if got := s.cores(); got < 0.19 || got > 0.21 {
		t.Errorf("with none left: %.3f", got)
	}
}
