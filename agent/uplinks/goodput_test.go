package uplinks

import (
	"testing"
	"time"
)

// sender looks each 10 ms at a path of a round trip of trip, with a clock of its own.
type sender struct {
	Goodput
	now    time.Time
	total  int64
	waited time.Duration
	trip   time.Duration
}

const second = time.Second / 10 / time.Millisecond // in looks

// sends has looks see bytes per second, while something waits in that share of each 10 ms; known: somebody tells.
func (s *sender) sends(looks time.Duration, rate int64, waits float64, known bool) (got int64) {
	const each = 10 * time.Millisecond
	for range looks {
		s.now = s.now.Add(each)
		s.total += rate / int64(time.Second/each)
		s.waited += time.Duration(waits * float64(each))
		waited := s.waited
		if !known {
			waited = NotKnown
		}
		got = s.See(s.now, s.total, waited, s.trip)
	}
	return got
}

// newSender is one that saw rate for long; 0: nothing.
func newSender(rate int64) *sender {
	s := &sender{now: time.Unix(1000, 0)}
	if rate > 0 {
		s.sends(10*second, rate, 1, true)
	}
	return s
}

func TestGoodput(t *testing.T) {
	s := newSender(0)
	if got := s.sends(1, 0, 0, true); got != 0 {
		t.Fatalf("at the first look: %d", got)
	}
	steady := s.sends(3*second, 1e9, 0, true)
	if steady < 990e6 || steady > 1e9 {
		t.Fatalf("steady: %d", steady)
	}
	if got := s.sends(second, 0, 0, true); got != steady {
		t.Errorf("idle: %d, was %d", got, steady)
	}
	if got := s.sends(25, 1e8, 0, true); got >= steady || got < steady*8/10 {
		t.Errorf("a slow window: %d, was %d", got, steady)
	}
}

// TestFarSlower: a path that became far slower is known by a sender that has something to send all along, and by no
// other: little to send is no slow path, nor is one that was cut.
func TestFarSlower(t *testing.T) {
	const fast = 40_000_000
	for name, c := range map[string]struct {
		rate   int64
		waits  float64
		known  bool
		slower bool
	}{
		"twenty-five times, full": {fast / 25, 1, true, true},
		"a thousand times, full":  {fast / 1000, 0.95, true, true},
		"little to send":          {fast / 1000, 0, true, false},
		"something now and then":  {fast / 25, 0.6, true, false},
		"nobody tells":            {fast / 25, 1, false, false},
		"cut":                     {0, 1, true, false},
	} {
		s := newSender(fast)
		got := s.sends(4*second, c.rate, c.waits, c.known)
		if c.slower && (got < c.rate || got > c.rate*11/10) || !c.slower && got < fast*97/100 { // a sample is of both
			t.Errorf("%s: %d of %d bytes per second", name, got, c.rate)
		}
	}
}

// TestNotKnownForATime: a sample says nothing of a full path in which somebody did not know, were it for a moment.
func TestNotKnownForATime(t *testing.T) {
	const fast, slow = 40_000_000, 500_000
	s := newSender(fast)
	for range 40 {
		s.sends(12, slow, 1, true)
		s.sends(1, slow, 1, false)
	}
	if got := s.sends(1, slow, 1, true); got < fast*97/100 {
		t.Errorf("%d bytes per second, of %d", got, fast)
	}
}

// TestFasterAgain: what a path was said to carry as it was far slower holds no longer than that: one that is full says
// how fast it is at once, and where nobody fills it, it is forgotten.
func TestFasterAgain(t *testing.T) {
	const fast, slow = 40_000_000, 500_000
	for name, c := range map[string]struct {
		rate  int64
		waits float64
		looks time.Duration
		least int64
		most  int64
	}{
		"full":                        {fast, 1, 2 * second, fast * 9 / 10, fast},
		"full, half as fast":          {fast / 2, 1, 2 * second, fast * 9 / 20, fast / 2},
		"an idle guest, at first":     {2000, 0, second, slow, slow * 3 / 2},
		"an idle guest, after a time": {2000, 0, 90 * second, fast * 9 / 10, fast},
		"little to send":              {slow / 2, 0.1, 90 * second, fast * 9 / 10, fast},
		"as slow, and full":           {slow, 1, 30 * second, slow * 9 / 10, slow * 11 / 10},
		"cut":                         {0, 1, second, slow * 9 / 10, slow * 3 / 2},
	} {
		s := newSender(fast)
		s.sends(4*second, slow, 1, true)
		if got := s.sends(c.looks, c.rate, c.waits, true); got < c.least || got > c.most {
			t.Errorf("%s: %d bytes per second, of %d", name, got, c.rate)
		}
	}
	s := newSender(fast)
	s.sends(4*second, slow, 1, true)
	s.sends(4*second, fast/2, 1, true)
	if got := s.sends(90*second, 2000, 0, true); got > fast/2 {
		t.Errorf("it was seen to carry %d since, and is said to carry %d", fast/2, got)
	}
}

// TestSampleOfARoundTrip: what is told once in a round trip says nothing within one.
func TestSampleOfARoundTrip(t *testing.T) {
	s := newSender(0)
	s.trip = time.Second
	var least, most int64
	for n := range 20 {
		s.sends(second-1, 0, 1, true)
		got := s.sends(1, 100*10_000_000, 1, true) // a second's at once
		if n == 9 {
			least, most = got, got
		}
		if n > 9 {
			least, most = min(least, got), max(most, got)
		}
	}
	if least < 9_000_000 || most > 11_000_000 {
		t.Errorf("%d to %d of 10 MB per second", least, most)
	}
}

// TestSlowForAMoment: a path that was far slower for one sample, and then carries a third of what it did, is not taken for
// one that carries all of it again once nobody fills it.
func TestSlowForAMoment(t *testing.T) {
	const fast, now = 40_000_000, 13_000_000
	s := newSender(fast)
	s.sends(25, fast/50, 1, true)
	s.sends(10*second, now, 1, true)
	if got := s.sends(20*second, 2000, 0, true); got > now*11/10 {
		t.Errorf("%d bytes per second, of %d", got, now)
	}
}
