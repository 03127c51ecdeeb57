package agent

import (
	"testing"
	"time"

	"godwit/agent/record"
	"godwit/policy"
	"godwit/vm"
)

// TestRoundsAreToldAsTheyGo: whoever calls a copy off, or gives it up, finds how many it had.
func TestRoundsAreToldAsTheyGo(t *testing.T) {
	m, _ := budgeted(t, "precopy", 300*time.Millisecond, 0)
	for _, rounds := range []int64{1, 7} {
		m.tellCopy(vm.Progress{Rounds: rounds}, policy.Look{})
		if got := m.rec.Snapshot().Rounds; int64(got) != rounds {
			t.Errorf("after %d rounds the report has %d", rounds, got)
		}
	}
}

// TestDisksTakeNoMoreThanLeft: what a broken stream had taken and never sent is not counted; where nothing is
// known of what left it is as the stream says.
func TestDisksTakeNoMoreThanLeft(t *testing.T) {
	for _, c := range []struct {
		wire          map[string]int64
		carried, want int64
		uncounted     map[string]string
	}{
		{map[string]int64{"public-public": 500, "private-public": 73}, 650, 573, nil},
		{map[string]int64{"public-public": 700}, 650, 650, nil},
		{map[string]int64{}, 650, 650, nil},
		{nil, 650, 650, nil},
		{map[string]int64{"public-public": 500}, 650, 650, map[string]string{"private-public": "no meter"}},
	} {
		m, _ := budgeted(t, "precopy", 300*time.Millisecond, 0)
		m.rec.Edit(func(r *record.Report) { r.WireBytes, r.WireUncounted = c.wire, c.uncounted })
		if m.countDisks(c.carried); m.rec.Snapshot().DiskBytes != c.want {
			t.Errorf("%v left: %d of disks, want %d", c.wire, m.rec.Snapshot().DiskBytes, c.want)
		}
	}
}
