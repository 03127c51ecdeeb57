package agent

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"godwit/agent/limits"
	"godwit/agent/record"
	"godwit/migration"
	"godwit/vm/guest"
)

// TestListedBeforeRetired: connections are listed before they leave their old address, as an agent that was started again
// finds them all joined; a list that does not come is not waited for for long, and is not lost.
func TestListedBeforeRetired(t *testing.T) {
	first, listed := limits.FirstTick, limits.Listed
	t.Cleanup(func() { limits.FirstTick, limits.Listed = first, listed })
	limits.FirstTick.For = 10 * time.Millisecond
	for _, c := range []struct {
		name  string
		limit time.Duration
		there bool
	}{{"a list that takes its time", time.Minute, true}, {"one that takes too long", 20 * time.Millisecond, false}} {
		var there, inTime atomic.Bool
		retired := make(chan struct{})
		m := landing(t, talking(t, map[string]guest.Handler{
			"ticks": answers(struct{}{}, nil), "configure": answers(guest.Configured{}, nil), "await_join": answers(guest.Joins{}, nil),
			"make_main": answers(struct{}{}, nil), "users": answers(guest.Users{}, nil),
			"connections": func(ctx context.Context, _ string, _ json.RawMessage) (any, error) {
				if c.there {
					sleep(ctx, 300*time.Millisecond)
				} else {
					<-retired
				}
				there.Store(true)
				return guest.Connections{}, nil
			},
			"retire": func(context.Context, string, json.RawMessage) (any, error) {
				inTime.Store(there.Load())
				close(retired)
				return struct{}{}, nil
			},
		}))
		limits.Listed.For = c.limit
		if err := m.adopt(t.Context()); err != nil {
			t.Fatal(err)
		}
		if inTime.Load() != c.there {
			t.Errorf("%s: listed before its old address went: %v, want %v", c.name, inTime.Load(), c.there)
		}
		select {
		case l := <-m.work.listedBefore:
			if l.err != nil {
				t.Errorf("%s: %v", c.name, l.err)
			}
		case <-time.After(5 * time.Second):
			t.Errorf("%s: it is lost", c.name)
		}
	}
}

// TestListedAgain: a guest that did not tell its connections, as it waited for its memory, is asked again when its
// handover is tried again, and one that told them is not.
func TestListedAgain(t *testing.T) {
	first := limits.FirstTick
	t.Cleanup(func() { limits.FirstTick = first })
	limits.FirstTick.For = 10 * time.Millisecond
	var asked atomic.Int32
	m := landing(t, talking(t, map[string]guest.Handler{
		"ticks": answers(struct{}{}, nil),
		"connections": func(context.Context, string, json.RawMessage) (any, error) {
			if asked.Add(1) == 1 {
				return nil, errors.New("the channel closed")
			}
			return guest.Connections{}, nil
		},
	}))
	for _, c := range []struct {
		asked int32
		known bool
	}{{1, false}, {2, true}, {2, true}} {
		if err := m.hearGuest(t.Context()); err != nil {
			t.Fatal(err)
		}
		l := <-m.work.listedBefore
		m.keepListed(l)
		if asked.Load() != c.asked || (l.err == nil) != c.known {
			t.Errorf("asked %d times, %v; want %d, known: %v", asked.Load(), l.err, c.asked, c.known)
		}
	}
}

// TestTruest: of the ticks that came meanwhile the one counts whose hearing was delayed least.
func TestTruest(t *testing.T) {
	const ms = 1_000_000
	events := make(chan guest.Event, 3)
	at := time.Unix(0, 0)
	for i, delay := range []int64{300, 20, 90} {
		mono := int64(500+10*i) * ms
		events <- guest.Event{Name: guest.EventTick, N: uint64(i), MonoNS: mono, At: at.Add(time.Duration(mono + delay*ms))}
	}
	if got := truest(record.New("rome", migration.Plan{}, at), &record.Tick{N: 1, At: 900 * ms, Mono: 490 * ms}, events); got.At-got.Mono != 20*ms {
		t.Errorf("%+v", got)
	}
}
