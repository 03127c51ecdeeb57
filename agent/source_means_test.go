package agent

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/agent/record"
	"godwit/migration"
	"godwit/policy"
)

// writer is a guest that writes short bytes per second as seen in a short look, long in a long
// one. One that is slow is measured by the second.
type writer struct {
	short, long int64
	err         error
	slow        bool
	looks       []time.Duration
}

func (w *writer) DirtyRate(_ context.Context, over time.Duration) (int64, error) {
	w.looks = append(w.looks, over)
	if w.slow {
		time.Sleep(dirtyFor)
	}
	if over < dirtyFor {
		return w.short, w.err
	}
	return w.long, w.err
}

// TestWriting: a guest that writes little is not measured for a second, as nothing hangs on
// how little; of one that may write too much what it writes again counts once, which takes one.
func TestWriting(t *testing.T) {
	const carried = 10e6
	broken := errors.New("no")
	for name, c := range map[string]struct {
		writer  writer
		quick   bool
		carried int64
		want    int64
		looks   []time.Duration
	}{
		"idle":                             {writer{short: 0, long: 0}, true, carried, 0, []time.Duration{dirtyFirst}},
		"little":                           {writer{short: 2e6, long: 1e6}, true, carried, 2e6, []time.Duration{dirtyFirst}},
		"the same again and again":         {writer{short: 30e6, long: 6e6}, true, carried, 6e6, []time.Duration{dirtyFirst, dirtyFor}},
		"more than is carried":             {writer{short: 30e6, long: 28e6}, true, carried, 28e6, []time.Duration{dirtyFirst, dirtyFor}},
		"what is carried is not known":     {writer{short: 30e6, long: 28e6}, true, 0, 30e6, []time.Duration{dirtyFirst}},
		"how much it is has to be known":   {writer{short: 1e6, long: 1e5}, false, carried, 1e5, []time.Duration{dirtyFor}},
		"measured by the second":           {writer{short: 9e6, long: 8e6, slow: true}, true, carried, 9e6, []time.Duration{dirtyFirst}},
		"the hypervisor does not tell":     {writer{err: broken}, true, carried, 0, []time.Duration{dirtyFirst}},
		"it does not tell, for the second": {writer{err: broken}, false, carried, 0, []time.Duration{dirtyFor}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := writing(t.Context(), &c.writer, c.quick, c.carried)
			if got != c.want || !errors.Is(err, c.writer.err) || !slices.Equal(c.writer.looks, c.looks) {
				t.Errorf("%d bytes/s, %v, after looks of %v; want %d after %v", got, err, c.writer.looks, c.want, c.looks)
			}
		})
	}
}

// TestHugePagesDoNotFollow: memory on huge pages cannot follow its guest, so `auto` does not choose
// that, and who asks for it is told in the check.
func TestHugePagesDoNotFollow(t *testing.T) {
	a, _ := served(t)
	for size, mode := range map[int64]string{0: "hybrid", 4096: "hybrid", 2 << 20: "precopy"} {
		m := leaving(a)
		m.plan.Mode, m.plan.Transfer, m.work.facts.PageSize = "auto", "lanes", size
		writes := make(chan int64, 1)
		writes <- 50e6
		m.work.dirtyRates = writes
		if err := m.settleMode(t.Context(), 80e6); err != nil || m.plan.Mode != mode || len(m.rec.Snapshot().Notes) != 1 {
			t.Errorf("pages of %d: mode %s, %v, %q", size, m.plan.Mode, err, m.rec.Snapshot().Notes)
		}
		for asked, names := range map[string]bool{"precopy": mode == "hybrid", "hybrid": false, "postcopy": false} { // what it does already helps no more
			if m.plan.Mode = asked; strings.Contains(m.cures(), "--mode hybrid") != names {
				t.Errorf("pages of %d, mode %s: %s", size, asked, m.cures())
			}
		}
	}
}

// TestCures: what is to be asked for instead is what the agents take.
func TestCures(t *testing.T) {
	a, _ := served(t)
	for transfer, means := range map[string]string{"lanes": "(--mode hybrid)", "mptcp": "(--mode hybrid)", "qemu-multifd": "(--mode hybrid --transfer lanes)"} {
		m := leaving(a)
		if m.plan.Mode, m.plan.Transfer = "precopy", transfer; !strings.HasSuffix(m.cures(), means) {
			t.Errorf("transfer %s: %s", transfer, m.cures())
		}
	}
}

// TestTurnsHybrid: a copy that does not meet its budget, which was not foreseen, is begun again with mode hybrid where
// nobody named a mode; not where one was named, where no mode would help, or where something else is in the way.
func TestTurnsHybrid(t *testing.T) {
	const slow = 10_000 // bytes/s that the paths carry, where no mode helps
	for name, c := range map[string]struct {
		mode     string
		pageSize int64
		goodput  int64
		doing    migration.Effect
		want     string // mode of the next try; "": there is none
	}{
		"nobody named a mode":     {"auto", 4096, 10e6, migration.CopyMemory, "hybrid"},
		"after hooks were asked":  {"auto", 4096, 10e6, migration.AskSuspend, "hybrid"},
		"as the switch began":     {"auto", 4096, 10e6, migration.Flip, "hybrid"},
		"it is to be stopped":     {"auto", 4096, 10e6, migration.Pause, ""},
		"precopy was asked for":   {"precopy", 4096, 10e6, migration.CopyMemory, ""},
		"hybrid was":              {"hybrid", 4096, 10e6, migration.CopyMemory, ""},
		"huge pages":              {"auto", 2 << 20, 10e6, migration.CopyMemory, ""},
		"the way alone takes all": {"auto", 4096, slow, migration.CopyMemory, ""},
		"it is undone already":    {"auto", 4096, 10e6, migration.UndoCopyMemory, ""},
		"in the check":            {"auto", 4096, 10e6, migration.CheckThere, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m, _ := budgeted(t, c.mode, 300*time.Millisecond, 20*time.Millisecond)
			m.a.ctx = t.Context()
			m.guest.RunsIn(quiet{gone{done: make(chan struct{})}})
			writes := make(chan int64, 1)
			writes <- 1000
			m.work.dirtyRates, m.work.facts.PageSize = writes, c.pageSize
			if err := m.settleMode(t.Context(), 80e6); err != nil {
				t.Fatal(err)
			}
			if c.doing == migration.UndoCopyMemory {
				m.state, _, _ = sourceDoing(t, migration.CopyMemory).Step(migration.Input{Kind: migration.Abort, Problem: &migration.Problem{}})
			} else {
				m.state = sourceDoing(t, c.doing)
			}
			look := policy.Look{At: time.Minute, Turn: 2, Remaining: 50e6, Goodput: c.goodput, Tail: policy.PackedTail}
			in := m.verdict(c.doing, m.cannotFit(look, &policy.Copying{RTT: 20 * time.Millisecond}))
			if in.Kind != migration.Fault || in.Again != (c.want != "") {
				t.Fatalf("%+v", in)
			}
			if c.want == "" {
				return
			}
			turned, _, err := m.state.Step(in)
			if err != nil {
				t.Fatal(err)
			}
			m.setState(turned)
			notes := m.rec.Snapshot().Notes
			if note := notes[len(notes)-1]; !strings.HasPrefix(note, "turning back: ") || !strings.Contains(note, "cannot be met") || strings.Contains(note, "--mode hybrid") {
				t.Errorf("it is advised what it does: %q", note)
			}
			m.newEpoch(migration.Source{Course: migration.Forward, Epoch: 3, Tries: 1})
			notes = m.rec.Snapshot().Notes
			if m.plan.Mode != c.want || m.rec.Snapshot().Mode != c.want || !strings.Contains(notes[len(notes)-1], "begins again with mode hybrid (try 2, epoch 3)") {
				t.Errorf("mode %s, reported %s, %q", m.plan.Mode, m.rec.Snapshot().Mode, notes)
			}
			if carried := m.carried(config.Neighbour{}); carried != 8*c.goodput {
				t.Errorf("the next try is foreseen with %d bit/s, and the last one came to %d", carried, 8*c.goodput)
			}
			if again := m.verdict(c.doing, m.cannotFit(look, &policy.Copying{})); again.Again {
				t.Error("it would begin a third time")
			}
		})
	}
	m, _ := budgeted(t, "auto", 300*time.Millisecond, 20*time.Millisecond)
	m.work.mayFollow, m.state = true, sourceDoing(t, migration.CopyMemory)
	if in := m.verdict(migration.CopyMemory, &migration.Problem{Code: migration.CodePath}); in.Again {
		t.Error("a path that carries nothing is no matter of the mode")
	}
	m.progress(record.CopyProgress{DataPath: &record.DataPath{Opaque: "dirty-bitmap"}})
	if in := m.verdict(migration.CopyMemory, &migration.Problem{Code: migration.CodeBudget}); in.Again {
		t.Error("of a stream that is passed on as it is nothing can follow the guest")
	}
}
