package agent

import (
	"fmt"
	"testing"
	"time"

	"godwit/migration"
)

// TestRecordsAreBounded: an agent that lives long does not grow with every migration; those
// under way keep all that they have.
func TestRecordsAreBounded(t *testing.T) {
	a := &Agent{records: map[string]*Record{}}
	begin := func(n int) *Record {
		r := newRecord("paris", migration.Plan{ID: fmt.Sprintf("m-%08x", n)}, time.Now())
		r.note("a word")
		a.remember(r)
		return r
	}
	longest := begin(0)
	for n := 1; n <= recordsKept+50; n++ {
		begin(n).end(migration.Completed, nil, time.Unix(int64(n), 0))
	}
	last := begin(recordsKept + 51)
	stories := 0
	for _, r := range a.records {
		if len(r.events) > 0 && r.endedAt() > 0 {
			stories++
		}
	}
	if len(a.records) > recordsKept+2 || stories > storiesKept {
		t.Errorf("%d records, %d stories of migrations that ended", len(a.records), stories)
	}
	if a.records["m-00000000"] != longest || len(longest.events) == 0 || len(last.events) == 0 {
		t.Error("one under way was forgotten")
	}
	if a.records["m-00000001"] != nil || a.records[fmt.Sprintf("m-%08x", recordsKept+50)] == nil {
		t.Error("not the oldest were forgotten")
	}
}
