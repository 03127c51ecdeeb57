package proxy

import (
	"strings"
	"testing"

	"godwit/transfer/inlet"
	"godwit/transfer/pages"
	"godwit/transfer/paths"
	"godwit/transfer/wire"
)

// TestSourceRefusesLies of a destination, in post-copy.
func TestSourceRefusesLies(t *testing.T) {
	fault := func(page uint64) func(*Source) error {
		return func(s *Source) error { return s.control(wire.TopicFault, wire.AppendFault(nil, []uint64{page})) }
	}
	want := func(last bool, runs ...wire.Run) func(*Source) error {
		return func(s *Source) error { return s.control(wire.TopicWanted, wire.AppendWanted(nil, runs, last)) }
	}
	for name, c := range map[string]struct {
		refill, early bool
		say           []func(*Source) error // the last is the lie
		want          string
	}{
		"a fault before the guest runs":    {false, false, []func(*Source) error{fault(1)}, "before the guest runs"},
		"a fault out of range":             {false, true, []func(*Source) error{fault(99), fault(100)}, "page 100 of 100"},
		"a fault out of range, in refill":  {true, true, []func(*Source) error{fault(1 << 63)}, "of 100 asked for"},
		"a list that nobody asked for":     {false, true, []func(*Source) error{want(true)}, "out of place"},
		"a page out of range is missing":   {true, true, []func(*Source) error{want(false, wire.Run{First: 99, Count: 2})}, "2 pages from 99 of 100"},
		"a page is missing twice":          {true, true, []func(*Source) error{want(false, wire.Run{First: 1, Count: 2}), want(false, wire.Run{First: 2, Count: 1})}, "missing twice"},
		"more of the list after its end":   {true, true, []func(*Source) error{want(true), want(true)}, "out of place"},
		"half a list":                      {true, true, []func(*Source) error{func(s *Source) error { return s.control(wire.TopicWanted, []byte{0, 0, 3}) }}, "malformed"},
		"a list of another kind":           {true, true, []func(*Source) error{func(s *Source) error { return s.control(wire.TopicWanted, []byte{7, 0, 0}) }}, "malformed"},
		"an end before there was anything": {false, true, []func(*Source) error{func(s *Source) error { return s.passShut([]byte{1}) }}, "has not begun"},
	} {
		t.Run(name, func(t *testing.T) {
			sender := paths.NewSender(t.Context(), paths.SenderConfig{})
			defer sender.Close() //nolint:errcheck // it had no lanes
			s := &Source{config: SourceConfig{Refill: c.refill}, store: pages.New(100, pages.NewArena(1<<20, nil, nil)), sender: sender}
			s.early.Store(c.early)
			if c.refill {
				s.refill = &refill{wanted: inlet.NewMissing(100), early: map[uint64]bool{}, all: make(chan struct{})}
			}
			for i, say := range c.say {
				err := say(s)
				if lie := i == len(c.say)-1; lie != (err != nil) || lie && !strings.Contains(err.Error(), c.want) {
					t.Errorf("said %d: %v", i, err)
				}
			}
		})
	}
}

// TestMissedBeforeTheStream: pages that a destination says it misses before there is any.
func TestMissedBeforeTheStream(t *testing.T) {
	s := &Source{}
	if err := s.control(wire.TopicMiss, wire.AppendMiss(nil, 1, []uint64{1})); err == nil || !strings.Contains(err.Error(), "missed") {
		t.Errorf("%v", err)
	}
}

// TestDestinationRefusesLies of a source, in post-copy.
func TestDestinationRefusesLies(t *testing.T) {
	discard := func(runs ...wire.Run) func(*Destination) error {
		return func(d *Destination) error { return d.control(wire.TopicDiscard, wire.AppendDiscard(nil, runs)) }
	}
	run := func(d *Destination) error { return d.control(wire.TopicRun, wire.AppendRun(nil, wire.Start{})) }
	for name, c := range map[string]struct {
		say  func(*Destination) error
		want string
	}{
		"pages are discarded before the prologue": {discard(wire.Run{First: 1, Count: 1}), "out of place"},
		"a list that does not end":                {func(d *Destination) error { return d.control(wire.TopicAbsent, []byte{1, 1}) }, "absent"},
		"a guest to run before the prologue":      {run, "out of place"},
		"what goes back":                          {func(d *Destination) error { return d.control(wire.TopicWanted, wire.AppendWanted(nil, nil, true)) }, "topic 14"},
		"the end of a stream that is not opaque":  {func(d *Destination) error { return d.control(wire.TopicRawEnd, nil) }, "not opaque"},
		"a frame before the prologue": {func(d *Destination) error {
			_, err := d.frame(1, nil)
			return err
		}, "out of place"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := c.say(&Destination{missing: map[uint64]uint64{}}); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v", err)
			}
		})
	}
}
