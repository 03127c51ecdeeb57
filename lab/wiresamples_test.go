package lab

import (
	"maps"
	"testing"
	"time"

	"godwit/agent/record"
	"godwit/migration"
)

// TestBytesOfAShortStopAndCopy: memory that went while its guest stood still, in however short a time, is in the
// picture; what is told soon before the last page came is all of it, but for calls.
func TestBytesOfAShortStopAndCopy(t *testing.T) {
	began := time.Unix(1000, 0)
	wire := map[string]int64{"public-public": 1812451}
	for name, c := range map[string]struct {
		told []wireSample
		took time.Duration
		want []int64
	}{
		"nothing was told":     {nil, 600 * time.Millisecond, []int64{0, 1812451}},
		"told soon before":     {[]wireSample{{began.Add(500 * time.Millisecond), map[string]int64{"public-public": 1800000}}}, 600 * time.Millisecond, []int64{1800000}},
		"told long before":     {[]wireSample{{began, map[string]int64{"public-public": 5}}}, 3 * time.Second, []int64{5, 1812451}},
		"it took some seconds": {nil, 3 * time.Second, []int64{0, 1812451}},
	} {
		m := &move{
			wire: c.told, started: map[migration.Phase]time.Time{migration.Copy: began},
			report: &record.Report{Outcome: migration.Completed, MemoryDone: began.Add(c.took).UnixNano(), WireBytes: wire},
		}
		got := m.wireSamples()
		same := len(got) == len(c.want)
		for i := 0; same && i < len(got); i++ {
			same = maps.Equal(got[i].bytes, map[string]int64{"public-public": c.want[i]})
		}
		if !same {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
