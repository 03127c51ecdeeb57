package qemu

import (
	"slices"
	"strings"
	"testing"
)

// TestLimitIsKeptToTheEnd: what is left after the last look QEMU sends without its limit. Where nobody else keeps that,
// one with a limit, which may have come since it began, sends what it knows of before it looks; it is let take more all
// the same.
func TestLimitIsKeptToTheEnd(t *testing.T) {
	for name, c := range map[string]struct {
		keeps    bool
		at, then int64 // bytes per second; 0: no limit
		looks    bool
	}{
		"no limit":              {true, 0, 0, true},
		"limit":                 {true, 1e6, 1e6, false},
		"limit since":           {true, 0, 1e6, false},
		"no limit any more":     {true, 1e6, 0, true},
		"somebody else's limit": {false, 1e6, 1e6, true},
	} {
		t.Run(name, func(t *testing.T) {
			f, p := newFake(t, "10.0.2")
			opts, heard := held, 0
			opts.LooksAtOnce, opts.KeepsLimit, opts.MaxBandwidth = true, c.keeps, c.at
			opts.Looks = func() { heard++ }
			if err := p.Migrate(t.Context(), opts); err != nil {
				t.Fatal(err)
			}
			if c.then != c.at {
				if err := p.SetBandwidth(t.Context(), c.then); err != nil {
					t.Fatal(err)
				}
			}
			if looks := f.released(t, p); looks != c.looks || heard != 1 {
				t.Errorf("looks at once: %v, let take more %d times", looks, heard)
			}
		})
	}
}

// released releases a QEMU at its fence, and says whether it was told to look at once.
func (f *fake) released(t *testing.T, p *Process) bool {
	t.Helper()
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.set(func() { f.status = "pre-switchover" })
	if err := p.ReleaseSwitchover(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.said(t, `migrate-continue {"state":"pre-switchover"}`)
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(f.log, func(line string) bool { return strings.Contains(line, `"downtime-limit":2000000`) })
}

// TestReleaseByLowBandwidth: one that is held so is told all at once, by one command, whatever it is asked for.
func TestReleaseByLowBandwidth(t *testing.T) {
	for _, looks := range []bool{false, true} {
		f, p := newFake(t, "7.2.22")
		opts, heard := held, 0
		opts.LooksAtOnce, opts.Looks = looks, func() { heard++ }
		if err := p.Migrate(t.Context(), opts); err != nil {
			t.Fatal(err)
		}
		if !f.released(t, p) || heard > 0 != looks {
			t.Errorf("looks at once: %v, let take more %d times", looks, heard)
		}
		f.mu.Lock()
		told := 0
		for _, line := range f.log {
			if strings.Contains(line, `"downtime-limit":2000000`) {
				told++
				if !strings.Contains(line, `"max-bandwidth":1000000`) {
					t.Error(line)
				}
			}
		}
		f.mu.Unlock()
		if told != 1 {
			t.Errorf("told %d times", told)
		}
	}
}

// TestReleaseOfAnOlderMigration: an agent that was started again does not know how the one before it had QEMU send.
func TestReleaseOfAnOlderMigration(t *testing.T) {
	f, p := newFake(t, "10.0.2")
	f.first = func(command, _ string) (string, bool) {
		switch command {
		case "query-migrate-capabilities":
			return `[{"capability": "pause-before-switchover", "state": true}]`, true
		case "query-migrate":
			return `{"status": "pre-switchover", "ram": {}}`, true
		case "query-status":
			return `{"status": ` + quoted(f.run) + `}`, true
		case "stop":
			f.run = "paused"
		}
		return "{}", true
	}
	if f.released(t, p) {
		t.Error("it is told to look at once")
	}
}
