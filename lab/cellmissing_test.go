package lab

import (
	"encoding/json"
	"slices"
	"testing"

	"godwit/agent/record"
)

// TestCellSaysWhatWasMissing: of a fault in post-copy a cell says how many pages were missing by then, and where none
// was any more, as it is not what it was asked to be.
func TestCellSaysWhatWasMissing(t *testing.T) {
	told := func(what string, left int64) record.Event {
		data, err := json.Marshal(record.CopyProgress{What: what, Remaining: left})
		if err != nil {
			t.Fatal(err)
		}
		return record.Event{Kind: "progress", Data: data}
	}
	copying := told(record.CopyOfMemory, 8<<20)
	for name, c := range map[string]struct {
		heard []record.Event
		want  []string
	}{
		"nothing follows":   {[]record.Event{copying}, nil},
		"pages are missing": {[]record.Event{copying, told(record.CopyOfRest, 8<<20), told(record.CopyOfRest, 4<<20)}, []string{"some 1024 pages were missing"}},
		"all are there":     {[]record.Event{copying, told(record.CopyOfRest, 8<<20), told(record.CopyOfRest, 0)}, []string{"no page was missing any more"}},
	} {
		run := &cellRun{}
		for _, e := range append(c.heard, record.Event{Kind: "note"}) {
			run.hearMissing(e)
		}
		if run.noteMissing(); !slices.Equal(run.notes, c.want) {
			t.Errorf("%s: %q, want %q", name, run.notes, c.want)
		}
	}
}
