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
		if got := m.progressOf(vm.Progress{Remaining: 9e6, DirtyRate: c.dirty}, look).LeftS; got != c.want {
			t.Errorf("%s: %v s left, want %v", name, got, c.want)
		}
	}
}
