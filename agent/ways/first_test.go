package ways

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"godwit/agent/peer"
	"godwit/internal/clock"
)

// TestFirstThatAnswers: the first path is taken where it answers, and where it does so soon nothing else is tried; else
// the first that does, as soon as it is known that those before it do not.
func TestFirstThatAnswers(t *testing.T) {
	paths := []peer.Path{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	const soon, late, never = 20 * time.Millisecond, time.Second, 4 * time.Second
	for _, c := range []struct {
		a, b, c time.Duration
		want    int
		tried   string
		within  time.Duration
	}{
		{soon, soon, soon, 0, "a", soon},
		{late, soon, soon, 0, "abc", late},
		{never, late, soon, 1, "abc", never},
		{never, never, soon, 2, "abc", never + othersAfter},
		{never, never, never, -1, "abc", never + othersAfter},
	} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			var tried []string
			begun := time.Now()
			got, rtt, err := FirstThatAnswers(t.Context(), paths, func(ctx context.Context, p peer.Path) (time.Duration, error) {
				mu.Lock()
				tried = append(tried, p.Name)
				mu.Unlock()
				takes := map[string]time.Duration{"a": c.a, "b": c.b, "c": c.c}[p.Name]
				if !clock.Sleep(ctx, takes) {
					return 0, context.Cause(ctx)
				}
				if takes == never {
					return 0, errors.New(p.Name + " is down")
				}
				return time.Duration(p.Name[0]), nil
			})
			slices.Sort(tried)
			took, all := time.Since(begun), strings.Join(tried, "")
			if got != c.want || got >= 0 && rtt != time.Duration(paths[got].Name[0]) || all != c.tried || took != c.within {
				t.Errorf("%+v: %d within %v, of %s, after %v", c, got, rtt, all, took)
			}
			if (err == nil) != (c.want == 0) || err != nil && err.Error() != "a is down" {
				t.Errorf("%+v: why not the first: %v", c, err)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	if got, _, err := FirstThatAnswers(ctx, paths, func(ctx context.Context, _ peer.Path) (time.Duration, error) {
		n++
		cancel()
		return 0, context.Cause(ctx)
	}); got != -1 || n != 1 || !errors.Is(err, context.Canceled) {
		t.Errorf("cut off: %d, tried %d, %v", got, n, err)
	}
}
