package agent

import (
	"testing"
	"time"

	"godwit/policy"
	"godwit/transfer/pages"
	"godwit/transfer/proxy"
	"godwit/vm"
)

// TestTimeLeftOfAGuestThatWrites: what the guest writes meanwhile is sent as well, as our own data path sends it; QEMU
// says in its second round what that is, and the check did before. Where that is more than the paths carry no time is
// said to be left, unless the rest follows the guest.
func TestTimeLeftOfAGuestThatWrites(t *testing.T) {
	lanes, err := proxy.ListenSource(t.Context(), proxy.SourceConfig{Socket: t.TempDir() + "/out"})
	if err != nil {
		t.Fatal(err)
	}
	defer lanes.Close()                                  //nolint:errcheck // nothing came
	coded := int64(pages.Size / lanes.Stats().PageBytes) // a page is as short as it is taken for
	for name, c := range map[string]struct {
		mode           string
		checked, dirty int64 // bytes per second
		lanes          *proxy.Source
		want           float64
	}{
		"it writes nothing":                {"precopy", 0, 0, nil, 0.9},
		"most of what is carried":          {"precopy", 0, 9e6, nil, 9},
		"in the first round":               {"precopy", 5e6, 0, nil, 1.8},
		"it writes less than was measured": {"precopy", 9e6, 5e6, nil, 1.8},
		"more than is carried":             {"precopy", 0, 20e6, nil, 0},
		"the rest follows it":              {"hybrid", 0, 20e6, nil, 0.9},
		"the rest follows it, of less":     {"hybrid", 0, 9e6, nil, 0.9},
		"it is sent shorter":               {"precopy", 0, coded * 5e6, lanes, 1.8},
		"and is more all the same":         {"precopy", 0, coded * 20e6, lanes, 0},
	} {
		m, _ := budgeted(t, c.mode, 300*time.Millisecond, 20*time.Millisecond)
		m.work.dirtyRate, m.work.lanes = c.checked, c.lanes
		look := policy.Look{Remaining: 9e6, Goodput: 10e6, DirtyRate: c.dirty}
		told := m.progressOf(vm.Progress{Remaining: 9e6, DirtyRate: 1 << 40}, look)
		if told.LeftS != c.want {
			t.Errorf("%s: %v s left, want %v", name, told.LeftS, c.want)
		}
		if c.dirty == 0 && told.DirtyRate != nil || c.dirty != 0 && (told.DirtyRate == nil || *told.DirtyRate != c.dirty) {
			t.Errorf("%s: it writes %v, want %d", name, told.DirtyRate, c.dirty)
		}
	}
}

// TestDirtyRateIsOfLongRounds: QEMU counts a page in each of its rounds. Where nobody else knows the guest's pages,
// what it counted in rounds of milliseconds is told to nobody.
func TestDirtyRateIsOfLongRounds(t *testing.T) {
	m, _ := budgeted(t, "precopy", 300*time.Millisecond, 20*time.Millisecond)
	m.plan.Transfer = "qemu-tcp"
	const inLong, inShort = 16e6, 62e6
	for _, c := range []struct {
		at      time.Duration
		round   int64
		counted int64
		want    int64
	}{
		{time.Second, 1, 0, 0},
		{20 * time.Second, 2, inLong, inLong},
		{22 * time.Second, 2, inLong, inLong},
		{23 * time.Second, 3, inLong, inLong},
		{23010 * time.Millisecond, 4, inLong, 0},
		{24 * time.Second, 90, inShort, 0},
		{26 * time.Second, 91, inLong, inLong},
	} {
		look := policy.Look{At: c.at, DirtyRate: c.counted}
		if m.seeRound(&look, c.round); look.DirtyRate != c.want {
			t.Errorf("after %v, round %d: %d bytes per second, want %d", c.at, c.round, look.DirtyRate, c.want)
		}
	}
	if got := m.writes(policy.Look{}); got != "writes (how much is not known)" {
		t.Error(got)
	}
	m.work.dirtyRate = 5e6 // as the check measured it
	if got := m.writes(policy.Look{}); got != "writes 5.0 MB/s" {
		t.Error(got)
	}
}
