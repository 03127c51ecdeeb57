package agent

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/transfer/encode/visit"
	"godwit/transfer/pages"
)

// visitsHost has memory kept of guests, by age, 64 KiB each.
func visitsHost(t *testing.T, c *config.Config, kept map[string]time.Duration) *Agent {
	t.Helper()
	c.State, c.Run = t.TempDir(), t.TempDir()
	if err := visit.MakeKey(c.MemoryKey()); err != nil {
		t.Fatal(err)
	}
	key, err := visit.ReadKey(c.MemoryKey())
	if err != nil {
		t.Fatal(err)
	}
	a := &Agent{config: c, log: slog.New(slog.DiscardHandler), records: noRecords(c)}
	for name, age := range kept {
		a.keepSome(t, name, age, key)
	}
	return a
}

func (a *Agent) keepSome(t *testing.T, name string, age time.Duration, key visit.Key) {
	t.Helper()
	w, err := visit.Create(a.config.StatePath("visits"), key)
	if err != nil {
		t.Fatal(err)
	}
	for page := range uint64(14) { // beside a head and a table
		if err := w.Write(page, make([]byte, pages.Size)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Name(name); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(a.config.StatePath("visits", name), time.Time{}, time.Now().Add(-age)); err != nil {
		t.Fatal(err)
	}
}

func (a *Agent) keptNames(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob(a.config.StatePath("visits", "*"))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, p := range paths {
		out = append(out, filepath.Base(p))
	}
	slices.Sort(out)
	return out
}

func TestKeptMemoryIsBounded(t *testing.T) {
	const some = 8 << 30
	all := map[string]time.Duration{"a.mem": 3 * time.Hour, "b.mem": 2 * time.Hour, "c.mem": time.Hour, "old.mem": 25 * time.Hour, ".tmp-x": 0}
	for name, c := range map[string]struct {
		config config.Config
		most   int64
		want   []string
	}{
		"as configured": {config.Config{KeepMemory: some}, some, []string{"a.mem", "b.mem", "c.mem"}},
		"shorter":       {config.Config{KeepMemory: some, KeepMemoryFor: 90 * time.Minute}, some, []string{"c.mem"}},
		"less":          {config.Config{KeepMemory: some}, 130 << 10, []string{"b.mem", "c.mem"}},
		"turned off":    {config.Config{}, some, nil},
		"all":           {config.Config{KeepMemory: some}, 0, nil},
	} {
		a := visitsHost(t, &c.config, all)
		a.boundVisits(c.most)
		if got := a.keptNames(t); !slices.Equal(got, append([]string{".tmp-x"}, c.want...)) {
			t.Errorf("%s: kept %v, want %v", name, got, c.want)
		}
	}
}

// What another key has sealed, as that before a power cut, is of no use to anybody.
func TestKeptMemoryWithoutItsKey(t *testing.T) {
	const some = 8 << 30
	a := visitsHost(t, &config.Config{KeepMemory: some}, map[string]time.Duration{"a.mem": 0})
	a.keepSome(t, "b.mem", 0, visit.Key{9})
	if _, err := OpenVisit(a.config, a.visitPath("a")); err != nil {
		t.Error(err)
	}
	a.boundVisits(some)
	if got := a.keptNames(t); !slices.Equal(got, []string{"a.mem"}) {
		t.Errorf("kept %v", got)
	}
	if err := os.Remove(a.config.MemoryKey()); err != nil {
		t.Fatal(err)
	}
	a.makeVisitKey()
	a.boundVisits(some)
	if got := a.keptNames(t); len(got) != 0 {
		t.Errorf("kept %v after the key was lost", got)
	}
}

// What is kept makes way for what needs its room.
func TestKeptMemoryMakesWay(t *testing.T) {
	a := visitsHost(t, &config.Config{KeepMemory: 1 << 30}, map[string]time.Duration{"a.mem": 0})
	free, ok, err := a.roomFor(0)
	if err != nil || !ok {
		t.Skipf("less than the reserve is free: %d bytes, %v", free, err)
	}
	if got := a.keptNames(t); len(got) != 1 {
		t.Errorf("kept %v where there is room", got)
	}
	if _, ok, err := a.roomFor(1 << 60); ok || err != nil {
		t.Errorf("room for 2^60 bytes: %v", err)
	}
	if got := a.keptNames(t); len(got) != 0 {
		t.Errorf("kept %v where there is none", got)
	}
}

// Guests share what they bring with those that come from the same host, and with no others.
func TestBesideFrom(t *testing.T) {
	var a Agent
	one, other := a.besideFrom("paris"), a.besideFrom("rome")
	if one == nil || one == other || a.besideFrom("paris") != one {
		t.Error("guests of two hosts share, or those of one do not")
	}
}
