package visits

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

var quiet = slog.New(slog.DiscardHandler)

// host has memory kept of guests, by age, 64 KiB each.
func host(t *testing.T, c *config.Config, kept map[string]time.Duration) {
	t.Helper()
	c.State, c.Run = t.TempDir(), t.TempDir()
	if err := visit.MakeKey(c.MemoryKey()); err != nil {
		t.Fatal(err)
	}
	key, err := visit.ReadKey(c.MemoryKey())
	if err != nil {
		t.Fatal(err)
	}
	for name, age := range kept {
		keepSome(t, c, name, age, key)
	}
}

func keepSome(t *testing.T, c *config.Config, name string, age time.Duration, key visit.Key) {
	t.Helper()
	w, err := visit.Create(c.StatePath("visits"), key)
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
	if err := os.Chtimes(c.StatePath("visits", name), time.Time{}, time.Now().Add(-age)); err != nil {
		t.Fatal(err)
	}
}

func keptNames(t *testing.T, c *config.Config) []string {
	t.Helper()
	paths, err := filepath.Glob(c.StatePath("visits", "*"))
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
		host(t, &c.config, all)
		Bound(&c.config, c.most, quiet.Warn)
		if got := keptNames(t, &c.config); !slices.Equal(got, append([]string{".tmp-x"}, c.want...)) {
			t.Errorf("%s: kept %v, want %v", name, got, c.want)
		}
	}
}

// What another key has sealed, as that before a power cut, is of no use to anybody.
func TestKeptMemoryWithoutItsKey(t *testing.T) {
	const some = 8 << 30
	c := &config.Config{KeepMemory: some}
	host(t, c, map[string]time.Duration{"a.mem": 0})
	keepSome(t, c, "b.mem", 0, visit.Key{9})
	if _, err := open(c, "a"); err != nil {
		t.Error(err)
	}
	Bound(c, some, quiet.Warn)
	if got := keptNames(t, c); !slices.Equal(got, []string{"a.mem"}) {
		t.Errorf("kept %v", got)
	}
	if err := os.Remove(c.MemoryKey()); err != nil {
		t.Fatal(err)
	}
	if err := visit.MakeKey(c.MemoryKey()); err != nil {
		t.Fatal(err)
	}
	Bound(c, some, quiet.Warn)
	if got := keptNames(t, c); len(got) != 0 {
		t.Errorf("kept %v after the key was lost", got)
	}
}

// TestKeptMemoryAndTheClock: what was kept while the clock was ahead ends no later than what is kept now, which
// nobody's guest would have until that time came.
func TestKeptMemoryAndTheClock(t *testing.T) {
	const some, kept = 8 << 30, 200 * time.Millisecond
	c := &config.Config{KeepMemory: some, KeepMemoryFor: kept}
	host(t, c, map[string]time.Duration{"ahead.mem": -48 * time.Hour, "behind.mem": 48 * time.Hour})
	Bound(c, some, quiet.Warn)
	all, err := All(c)
	if err != nil || len(all) != 1 || all[0].Guest != "ahead" || all[0].Until.After(time.Now().Add(kept)) {
		t.Fatalf("kept %+v, %v", all, err)
	}
	until := all[0].Until
	Bound(c, some, quiet.Warn)
	if all, err := All(c); err == nil && len(all) == 1 && !all[0].Until.Equal(until) {
		t.Errorf("kept anew: until %v, and then until %v", until, all[0].Until)
	}
	time.Sleep(time.Until(until))
	Bound(c, some, quiet.Warn)
	if got := keptNames(t, c); len(got) != 0 {
		t.Errorf("kept %v after its time", got)
	}
}
