package disks

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"godwit/migration"
	"godwit/policy"
	"godwit/transfer"
	"godwit/vm"
)

// looked is a QEMU whose mirrors are as at says, by when it is asked.
type looked struct {
	vm.Blocks
	at       func(since time.Duration) ([]vm.MirrorState, error)
	begun    time.Time
	looks    int
	refuses  bool // writes do not wait
	blocked  []string
	finishes func(context.Context) error
}

func (l *looked) Mirrors(context.Context) ([]vm.MirrorState, error) {
	l.looks++
	return l.at(time.Since(l.begun))
}

func (l *looked) BlockWrites(_ context.Context, disk string) error {
	if l.refuses {
		return errors.New("The command block-job-change has not been found")
	}
	l.blocked = append(l.blocked, disk)
	return nil
}

func (l *looked) FinishMirrors(ctx context.Context) error { return l.finishes(ctx) }

// mirrors are those of the disks a and b, of which so many of 100 bytes are not copied.
func mirrors(left ...int64) (all []vm.MirrorState) {
	for n, lacks := range left {
		all = append(all, vm.MirrorState{Disk: string(rune('a' + n)), Done: 100 - lacks, Remaining: lacks, Ready: lacks == 0})
	}
	return all
}

// follows has do follow the mirrors of that QEMU, of the disks a and b, which may rest for 3 s.
func follows(t *testing.T, blocks *looked, do func(*testing.T, *Source)) {
	t.Helper()
	forward, err := transfer.ListenNBD(t.Context(), filepath.Join(t.TempDir(), "out.sock"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(forward.Close)
	synctest.Test(t, func(t *testing.T) {
		const patience = 3 * time.Second
		blocks.begun = time.Now()
		do(t, &Source{
			Config:  Config{Plan: migration.Plan{Guest: "web", To: "oslo"}, Disks: make([]vm.Disk, 2), Blocks: blocks, Patience: patience, Note: func(string) {}, Farewells: &sync.WaitGroup{}},
			forward: forward, seeding: policy.Seeding{Patience: patience},
		})
	})
}

// TestMirrorsAreAwaited: disks are seeded when each was copied once, and not before; how far they are is told now and
// then, and at the end.
func TestMirrorsAreAwaited(t *testing.T) {
	blocks := &looked{at: func(since time.Duration) ([]vm.MirrorState, error) {
		return mirrors(max(0, 40-int64(since/(20*time.Millisecond))), max(0, 60-int64(since/(10*time.Millisecond)))), nil
	}}
	follows(t, blocks, func(t *testing.T, s *Source) {
		var left []int64
		if err := s.Await(t.Context(), nil, func(done, lacks int64) {
			if left = append(left, lacks); done+lacks != 200 {
				t.Errorf("%d are there, %d are left", done, lacks)
			}
		}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(blocks.begun); took != 800*time.Millisecond {
			t.Errorf("after %v", took)
		}
		if want := []int64{100, 55, 10, 0}; !slices.Equal(left, want) {
			t.Errorf("told of %v, want %v", left, want)
		}
	})
}

// TestMirrorsAreLookedAt: what QEMU says of a mirror has it looked at at once, what else it says does not, nor does
// that it says nothing any more.
func TestMirrorsAreLookedAt(t *testing.T) {
	for name, c := range map[string]struct {
		says  string
		looks int // until 250 ms are over
	}{
		"it is ready":           {"BLOCK_JOB_READY", 4},
		"it failed":             {"BLOCK_JOB_ERROR", 4},
		"another thing":         {"STOP", 3},
		"it says nothing more":  {"", 3},
		"it says nothing, ever": {"-", 3},
	} {
		blocks := &looked{at: func(time.Duration) ([]vm.MirrorState, error) { return mirrors(50, 0), nil }}
		follows(t, blocks, func(t *testing.T, s *Source) {
			events := make(chan vm.Event, 1)
			switch c.says {
			case "-":
			case "":
				close(events)
			default:
				events <- vm.Event{Name: c.says}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
			defer cancel()
			if err := s.Await(ctx, events, func(int64, int64) {}); !errors.Is(err, context.DeadlineExceeded) || blocks.looks != c.looks {
				t.Errorf("%s: %d looks, want %d, %v", name, blocks.looks, c.looks, err)
			}
		})
	}
}

// TestMirrorsThatEnd: what will not end well ends at once, and is told; where nothing moves that is after the patience
// with paths.
func TestMirrorsThatEnd(t *testing.T) {
	deaf := errors.New("QEMU does not answer")
	for name, c := range map[string]struct {
		states []vm.MirrorState
		err    error
		code   migration.Code
		says   string
		after  time.Duration
	}{
		"one is gone":   {mirrors(5), nil, migration.CodeHypervisor, "the copy of a disk to oslo broke: its mirror is gone", 0},
		"one has ended": {[]vm.MirrorState{{Disk: "a"}, {Disk: "b", Ended: true, Error: "No space left"}}, nil, migration.CodeHypervisor, "the copy of b to oslo broke: No space left", 0},
		"none moves":    {mirrors(5, 5<<20), nil, migration.CodePath, "nothing of its disks got to oslo for 3s, with 5 MiB to go", 3100 * time.Millisecond},
		"not answered":  {nil, deaf, "", deaf.Error(), 0},
	} {
		blocks := &looked{at: func(time.Duration) ([]vm.MirrorState, error) { return c.states, c.err }}
		follows(t, blocks, func(t *testing.T, s *Source) {
			err := s.Await(t.Context(), nil, func(int64, int64) {})
			var problem *migration.Problem
			if err == nil || !strings.Contains(err.Error(), c.says) || errors.As(err, &problem) != (c.code != "") || problem != nil && problem.Code != c.code {
				t.Errorf("%s: %v, want %s: %s", name, err, c.code, c.says)
			}
			if took := time.Since(blocks.begun); took != c.after {
				t.Errorf("%s: after %v, want %v", name, took, c.after)
			}
		})
	}
}

// TestGuestThatWritesFaster: while a guest writes faster than the copy follows, its writes to each disk that lacks
// something wait for it, which is told. Where QEMU does not let them that is an end, but not once the copy has followed
// since.
func TestGuestThatWritesFaster(t *testing.T) {
	for name, c := range map[string]struct {
		refuses bool
		follows time.Duration // from then on
		ends    time.Duration
		fails   bool
	}{
		"they wait":                    {false, 5 * time.Second, 5 * time.Second, false},
		"they do not":                  {true, time.Hour, 6200 * time.Millisecond, true},
		"they do not, and it followed": {true, 5 * time.Second, 5 * time.Second, false},
	} {
		blocks := &looked{refuses: c.refuses, at: func(since time.Duration) ([]vm.MirrorState, error) {
			all := mirrors(50, 50)
			all[0].Ready = true // once
			if since >= c.follows {
				all = mirrors(0, 0)
			}
			for n := range all {
				all[n].Done += int64(since)
			}
			return all, nil
		}}
		follows(t, blocks, func(t *testing.T, s *Source) {
			var notes, blocked []string
			if s.Note = func(text string) { notes = append(notes, text) }; !c.refuses {
				blocked = []string{"a", "b"}
			}
			err := s.Await(t.Context(), nil, func(int64, int64) {})
			if took := time.Since(blocks.begun); (err != nil) != c.fails || took != c.ends || !slices.Equal(blocks.blocked, blocked) || len(notes) != len(blocked) {
				t.Errorf("%s: after %v, writes to %v wait, told %q: %v", name, took, blocks.blocked, notes, err)
			}
			if s.refused.IsZero() == c.fails {
				t.Errorf("%s: refused since %v", name, s.refused)
			}
		})
	}
}

// TestLeftOfDisks: what is left is as of a look that is not old; of a guest without disks it is nothing.
func TestLeftOfDisks(t *testing.T) {
	if left, err := (*Source)(nil).Left(t.Context()); left != 0 || err != nil {
		t.Errorf("without disks %d, %v", left, err)
	}
	lacks := int64(50)
	blocks := &looked{at: func(time.Duration) ([]vm.MirrorState, error) {
		if lacks < 0 {
			return nil, errors.New("QEMU does not answer")
		}
		return mirrors(lacks, lacks), nil
	}}
	follows(t, blocks, func(t *testing.T, s *Source) {
		for _, c := range []struct {
			rest        time.Duration
			lacks, want int64
			fails       bool
		}{{0, 50, 100, false}, {mirrorLook, 30, 100, false}, {1, 30, 60, false}, {2 * mirrorLook, -1, 0, true}} {
			time.Sleep(c.rest)
			lacks = c.lacks
			if left, err := s.Left(t.Context()); left != c.want || (err != nil) != c.fails {
				t.Errorf("%+v: %d, %v", c, left, err)
			}
		}
	})
}

// TestDisksGetInSync: disks are in sync within the downtime budget and a second, or the migration is undone, and told why.
func TestDisksGetInSync(t *testing.T) {
	for _, takes := range []time.Duration{0, 1400 * time.Millisecond, time.Hour} {
		blocks := &looked{finishes: func(ctx context.Context) error {
			select {
			case <-time.After(takes):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}}
		follows(t, blocks, func(t *testing.T, s *Source) {
			s.Plan.Downtime = 500 * time.Millisecond
			s.forward = nil // its end is no timer's
			err := s.Finish(t.Context())
			s.Farewells.Wait()
			if took := time.Since(blocks.begun); took != min(takes, 1500*time.Millisecond) || (err == nil) != (takes < time.Hour) {
				t.Errorf("%v: after %v, %v", takes, took, err)
			}
			var problem *migration.Problem
			if err != nil && (!errors.As(err, &problem) || !strings.Contains(problem.Text, "disks did not get in sync with oslo")) {
				t.Error(err)
			}
		})
	}
}
