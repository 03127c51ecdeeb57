package paths

import (
	"slices"
	"testing"
	"time"

	"godwit/transfer/wire"
)

// TestRescuesInOrder: of what is on a stuck lane alone, urgent frames go again first, the first of them before others,
// and of the rest the first that the other end has not acknowledged; where urgent ones alone are wanted, nothing else.
func TestRescuesInOrder(t *testing.T) {
	for urgent, want := range map[bool][]uint64{false: {4, 5, 2, 3}, true: {4, 5}} {
		now := time.Now()
		s, cut, slow, f := stuckBeside(now)
		eta := cut.flights[0].eta
		cut.flights, slow.flights = nil, nil
		delete(s.unacked, f.number)
		for _, number := range []uint64{1, 3, 2, 4, 5} { // as they were put on it
			f := &frame{number: number, payload: make([]byte, 4096), urgent: number >= 4}
			f.flights = []*flight{{frame: f, lane: cut, eta: eta}}
			cut.flights = append(cut.flights, f.flights[0])
			if number > 1 { // else it was acknowledged
				s.unacked[number] = f
			}
		}
		var got []uint64
		for fl := s.rescue(slow, now, urgent); fl != nil && len(got) < 9; fl = s.rescue(slow, now, urgent) {
			got = append(got, fl.frame.number)
		}
		if !slices.Equal(got, want) {
			t.Errorf("urgent ones alone: %v: %v go again, want %v", urgent, got, want)
		}
		if s.rescue(cut, now, urgent) != nil {
			t.Error("a stuck lane gets one")
		}
	}
}

// TestLivesBeside: a stuck lane is left to itself where another one is not stuck.
func TestLivesBeside(t *testing.T) {
	now := time.Now()
	s, cut, slow, _ := stuckBeside(now)
	if !s.livesBeside(cut, now) || s.livesBeside(slow, now) {
		t.Errorf("beside the cut one: %v, beside the other: %v", s.livesBeside(cut, now), s.livesBeside(slow, now))
	}
	if s.lanes = s.lanes[:1]; s.livesBeside(cut, now) {
		t.Error("it is alone")
	}
}

// TestPatienceWithWhatLags: a lane is given twice the time by which it lately lagged: by what the kernel says, or,
// where it says nothing, by what was acknowledged.
func TestPatienceWithWhatLags(t *testing.T) {
	for name, c := range map[string]struct {
		knows         bool
		kernel, acked time.Duration
		stuck         bool
	}{
		"nothing lags":                  {false, 0, 0, true},
		"what was acknowledged did":     {false, 0, 100 * time.Millisecond, false},
		"the kernel says that it did":   {true, 100 * time.Millisecond, 0, false},
		"the kernel says that it never": {true, 0, 100 * time.Millisecond, true},
	} {
		now := time.Now()
		_, cut, _, _ := stuckBeside(now) // late by 70 ms
		cut.lag = c.acked
		if c.knows {
			cut.wrote, cut.flights[0].end = 4096, 4096
			told(cut, onWay{queued: 4096}, now.Add(-time.Second))
			cut.kernel.lag = c.kernel
		}
		if cut.stuck(now) != c.stuck {
			t.Errorf("%s: stuck: %v", name, !c.stuck)
		}
	}
}

// TestUrgentOnesWaitForNoQueue: an urgent frame is left to another lane where that alone would arrive sooner there,
// others where all that is queued would.
func TestUrgentOnesWaitForNoQueue(t *testing.T) {
	for urgent, sooner := range map[bool]bool{true: true, false: false} {
		now := time.Now()
		s, fast, slow, f := stuckBeside(now)
		fast.flights, f.urgent, s.queued = nil, urgent, 100<<20
		if s.sooner(slow, f, now) != sooner {
			t.Errorf("urgent: %v: it is left to the other: %v", urgent, !sooner)
		}
	}
}

// TestDiedWithFrames: of what was on a lane that died goes again what is on no other one and was not acknowledged,
// before what is queued, what is urgent first.
func TestDiedWithFrames(t *testing.T) {
	now := time.Now()
	s, cut, slow, both := stuckBeside(now)
	cut.flights, slow.flights = cut.flights[:1], slow.flights[:1] // frame 1 is on both
	for number := uint64(2); number <= 5; number++ {
		f := &frame{number: number, payload: make([]byte, 4096), urgent: number == 4}
		f.flights = []*flight{{frame: f, lane: cut}}
		cut.flights = append(cut.flights, f.flights[0])
		if number > 2 { // else it was acknowledged
			s.unacked[number] = f
		}
	}
	for number := uint64(6); number <= 7; number++ {
		s.unacked[number] = &frame{number: number, payload: make([]byte, 4096), urgent: number == 6}
		s.queue, s.queued = append(s.queue, s.unacked[number]), s.queued+4096
	}
	s.drop(cut)
	var got []uint64
	for _, f := range s.queue {
		got = append(got, f.number)
	}
	if want := []uint64{4, 6, 3, 5, 7}; !slices.Equal(got, want) || s.queued != 5*4096 {
		t.Errorf("%v are queued, %d bytes; want %v", got, s.queued, want)
	}
	if len(cut.flights) > 0 || len(both.flights) != 1 || both.flights[0].lane != slow {
		t.Errorf("on the dead one: %d; frame 1 is on %d lanes", len(cut.flights), len(both.flights))
	}
}

// TestAcknowledgesWhatWasSent: a word of a frame that was not sent yet is refused, also beside those that were.
func TestAcknowledgesWhatWasSent(t *testing.T) {
	for name, c := range map[string]struct {
		ack wire.Ack
		ok  bool
	}{
		"all":              {wire.Ack{Frames: 1}, true},
		"one more":         {wire.Ack{Frames: 2}, false},
		"a later one":      {wire.Ack{Ranges: []wire.Range{{First: 9, Last: 9}}}, false},
		"a later one, too": {wire.Ack{Frames: 1, Ranges: []wire.Range{{First: 3, Last: 3}}}, false},
	} {
		now := time.Now()
		s, cut, _, _ := stuckBeside(now)
		s.highest, cut.s = 1, &s.session
		if err := s.heardFrames(cut, c.ack, now); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
