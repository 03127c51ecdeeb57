package otherway

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"godwit/agent/limits"
	"godwit/agent/peer"
	"godwit/internal/clock"
)

// TestSilentTunnelTakesAnotherPair: a tunnel that does not answer is led over the first other pair that does, and stays
// there; one by which it does not answer all the same is left for any other that does.
func TestSilentTunnelTakesAnotherPair(t *testing.T) {
	always, never := func(time.Duration) bool { return true }, func(time.Duration) bool { return false }
	before := func(end time.Duration) func(time.Duration) bool {
		return func(at time.Duration) bool { return at < end }
	}
	since := func(begin time.Duration) func(time.Duration) bool {
		return func(at time.Duration) bool { return at >= begin }
	}
	type pair struct {
		up, carries func(time.Duration) bool // at a time since the beginning
	}
	for _, c := range []struct {
		name    string
		pairs   [3]pair // the tunnel takes the second
		refuses int     // how often the other end does not go
		none    string  // the pairs by which it never goes
		heard   string  // the pairs that all but echoes passes
		drops   string  // the pairs that drop fragments
		shrinks string  // those of them by which connections began with small packets
		ends    time.Duration
		led     string
		within  time.Duration
	}{
		{name: "it answers", pairs: [3]pair{{always, always}, {never, always}, {always, always}}},
		{name: "its pair is down", pairs: [3]pair{{always, always}, {never, never}, {always, always}}, led: "a", within: 10 * time.Second},
		{name: "its pair and the first are down", pairs: [3]pair{{never, never}, {never, never}, {always, always}}, led: "c", within: 10 * time.Second},
		{name: "a moment without an answer", pairs: [3]pair{{always, always}, {never, since(4 * time.Second)}, {always, always}}, within: 4 * time.Second},
		{name: "its pair answers, and the other end was elsewhere", pairs: [3]pair{{always, always}, {always, since(7 * time.Second)}, {always, always}}, led: "b", within: 7 * time.Second},
		{name: "no tunnel passes its pair", pairs: [3]pair{{always, always}, {always, never}, {always, always}}, led: "b a", within: 20 * time.Second},
		{name: "no tunnel passes but the last", pairs: [3]pair{{always, never}, {always, never}, {always, always}}, led: "b a c", within: 45 * time.Second},
		{name: "echoes do not pass", pairs: [3]pair{{always, never}, {always, never}, {always, never}}, ends: 4 * time.Minute, led: "b a c b a c", within: 5 * time.Minute},
		{name: "echoes alone do not pass", pairs: [3]pair{{always, never}, {always, never}, {always, never}}, heard: "abc", led: "b", within: 20 * time.Second},
		{name: "its pair is down, and echoes do not pass the other", pairs: [3]pair{{always, never}, {never, never}, {never, never}}, heard: "a", led: "a", within: 20 * time.Second},
		{name: "its pair is down one way", pairs: [3]pair{{always, always}, {never, never}, {never, never}}, heard: "b", led: "a", within: 20 * time.Second},
		{name: "no tunnel passes the other, and its own comes back", pairs: [3]pair{{always, never}, {since(30 * time.Second), since(30 * time.Second)}, {never, never}}, led: "a b", within: time.Minute},
		{name: "nothing answers for a while", pairs: [3]pair{{since(40 * time.Second), since(40 * time.Second)}, {before(0), before(0)}, {never, never}}, led: "a", within: time.Minute},
		{name: "the other end does not go at first", pairs: [3]pair{{always, always}, {never, never}, {never, never}}, refuses: 2, led: "a", within: 30 * time.Second},
		{name: "the other end takes the first for none", pairs: [3]pair{{always, always}, {never, never}, {always, always}}, none: "a", led: "c", within: 30 * time.Second},
		{name: "its pair drops fragments", pairs: [3]pair{{always, always}, {always, always}, {always, always}}, drops: "b", shrinks: "b", led: "a", within: 10 * time.Second},
		{name: "all others drop fragments, and its own comes back", pairs: [3]pair{{always, always}, {since(time.Minute), since(time.Minute)}, {always, always}}, drops: "ac", shrinks: "ac", led: "a c b", within: 3 * time.Minute},
		{name: "the other drops fragments, and goes down too", pairs: [3]pair{{before(40 * time.Second), before(40 * time.Second)}, {never, never}, {since(2 * time.Minute), since(2 * time.Minute)}}, drops: "a", shrinks: "a", led: "a c", within: 4 * time.Minute},
		{name: "all drop fragments", pairs: [3]pair{{always, always}, {always, always}, {always, always}}, drops: "abc", shrinks: "bac", ends: 4 * time.Minute, led: "a c", within: 6 * time.Minute},
		{name: "its pair drops fragments, and no tunnel passes another", pairs: [3]pair{{always, never}, {always, always}, {never, never}}, drops: "b", shrinks: "b", ends: 4 * time.Minute, led: "a b", within: 6 * time.Minute},
		{name: "the only one up drops fragments", pairs: [3]pair{{never, never}, {always, always}, {never, never}}, drops: "b", shrinks: "b", ends: 4 * time.Minute, within: 6 * time.Minute},
		{name: "its host answers by none, and its pair drops fragments", pairs: [3]pair{{never, never}, {never, always}, {never, never}}, drops: "b", shrinks: "b", ends: 4 * time.Minute, within: 6 * time.Minute},
		{name: "its lease ends", pairs: [3]pair{{never, never}, {never, never}, {never, never}}, ends: time.Minute, within: 2 * time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			begun, at, led, shrunk, sends := time.Now(), "b", []string(nil), []string(nil), ""
			local := map[string]netip.Addr{"a": netip.MustParseAddr("192.0.2.1"), "b": netip.MustParseAddr("192.0.2.2"), "c": netip.MustParseAddr("192.0.2.3")}
			w := Way{
				Takes: func() (netip.Addr, netip.Addr, bool) {
					return local[at], netip.Addr{}, c.ends == 0 || time.Since(begun) < c.ends
				},
				Answers: func(ctx context.Context) Passage {
					ctx, cancel := limits.TryTunnel.On(ctx)
					defer cancel()
					echoes := false
					for ok := true; ok; ok = clock.Sleep(ctx, time.Second) {
						if echoes = c.pairs[at[0]-'a'].carries(time.Since(begun)); echoes && !strings.Contains(c.drops, at) {
							return Whole
						}
					}
					switch {
					case echoes:
						return Small
					case strings.Contains(c.heard, at):
						return NoEcho
					}
					return Nothing
				},
				Reaches: func(ctx context.Context, p peer.Path) (time.Duration, error) {
					if c.pairs[p.Name[0]-'a'].up(time.Since(begun)) {
						return 0, nil
					}
					clock.Sleep(ctx, limits.TryWay.For)
					return 0, errors.New("down")
				},
				Lead: func(_ context.Context, p peer.Path) error {
					if c.refuses--; c.refuses >= 0 {
						return errors.New("busy")
					}
					if strings.Contains(c.none, p.Name) {
						return errors.New("none that carries guests")
					}
					at, led = p.Name, append(led, p.Name)
					return nil
				},
				Shrink: func(small bool) {
					if sends = "whole"; small {
						sends, shrunk = "small", append(shrunk, at)
					}
				},
			}
			for _, name := range []string{"a", "b", "c"} {
				w.Pairs = append(w.Pairs, peer.Path{Name: name, Local: local[name]})
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			w.Keep(ctx)
			took := time.Since(begun)
			w.Keep(ctx) // where it answers it stays
			if strings.Join(slices.Compact(led), " ") != c.led || took > c.within || strings.Join(slices.Compact(shrunk), "") != c.shrinks {
				t.Errorf("%s: led over %v within %v, with small packets %v, want %s, %s", c.name, led, took, shrunk, c.led, c.shrinks)
			}
			if passes := w.Answers(t.Context()); (passes == Whole) != (sends == "whole") && passes != Nothing {
				t.Errorf("%s: %v comes through it, and connections begin with what is %s", c.name, passes, sends)
			}
		})
	}
}
