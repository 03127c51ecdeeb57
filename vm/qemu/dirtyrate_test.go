package qemu

import (
	"context"
	"strings"
	"testing"
	"time"
)

// TestDirtyRateIsAskedFor: QEMU 8.2 and later measure in milliseconds, older ones in seconds.
func TestDirtyRateIsAskedFor(t *testing.T) {
	for name, c := range map[string]struct {
		version string
		over    time.Duration
		want    []string
		least   time.Duration
	}{
		"a quarter of a second":                {"8.2.0", 250 * time.Millisecond, []string{`"calc-time":250`, `"calc-time-unit":"millisecond"`}, 250 * time.Millisecond},
		"less than QEMU can":                   {"10.0.2", time.Millisecond, []string{`"calc-time":50`, `"calc-time-unit":"millisecond"`}, 50 * time.Millisecond},
		"a second":                             {"10.0.2", time.Second, []string{`{"calc-time":1,"sample-pages"`}, time.Second},
		"a quarter, of one that is too old":    {"8.1.5", 250 * time.Millisecond, []string{`{"calc-time":1,"sample-pages"`}, time.Second},
		"a half more, of one that is too old":  {"7.2.22", 1500 * time.Millisecond, []string{`{"calc-time":1,"sample-pages"`}, time.Second},
		"as many seconds as are asked, if new": {"10.0.2", 2 * time.Second, []string{`{"calc-time":2,"sample-pages"`}, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, p := newFake(t, c.version)
			f.set(func() { f.dirty = `{"status": "measured", "dirty-rate": 3}` })
			begun := time.Now()
			rate, err := p.DirtyRate(t.Context(), c.over)
			if err != nil || rate != 3<<20 {
				t.Errorf("%d bytes/s, %v", rate, err)
			}
			if took := time.Since(begun); took < c.least {
				t.Errorf("asked for the answer after %v, before it is there", took)
			}
			f.said(t, append([]string{"calc-dirty-rate"}, c.want...)...)
		})
	}
}

// TestDirtyRateAwaitsTheLast: a second calc-dirty-rate before the thread of the first has begun
// leaves QEMU with a list that it goes round in for ever.
func TestDirtyRateAwaitsTheLast(t *testing.T) {
	f, p := newFake(t, "10.0.2")
	asked := func() int {
		n := 0
		f.set(func() { n = strings.Count(strings.Join(f.log, "\n"), "calc-dirty-rate") })
		return n
	}
	f.set(func() {
		f.dirty = `{"status": "unstarted", "sample-pages": 512, "start-time": 1795544802, "calc-time": 0}`
	})
	type answer struct {
		rate int64
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		rate, err := p.DirtyRate(t.Context(), leastSpan)
		answers <- answer{rate, err}
	}()
	for _, state := range []string{
		`{"status": "measuring", "sample-pages": 512, "start-time": 1795544802, "calc-time": 0}`,
		`{"status": "measured", "dirty-rate": 3, "sample-pages": 512, "start-time": 1795544802, "calc-time": 0}`,
	} {
		time.Sleep(5 * 20 * time.Millisecond)
		if n := asked(); n != 0 {
			t.Fatalf("asked %d times for another while one is under way", n)
		}
		f.set(func() { f.dirty = state })
	}
	if got := <-answers; got.err != nil || got.rate != 3<<20 {
		t.Errorf("%d bytes/s, %v", got.rate, got.err)
	}
	if n := asked(); n != 1 {
		t.Errorf("asked %d times: want once", n)
	}
	f.set(func() { f.dirty = `{"status": "unstarted", "sample-pages": 512}` })
	ctx, cancel := context.WithTimeout(t.Context(), 2*20*time.Millisecond)
	defer cancel()
	if _, err := p.DirtyRate(ctx, leastSpan); err == nil {
		t.Error("one that never begins is measured")
	}
}
