package lab

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"testing"

	"godwit/agent/api"
	"godwit/agent/record"
	"godwit/lab/matrix"
	"godwit/migration"
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

// TestPagesAreMissingInSettle: from the handover until its fault a cell of settle has pages come slowly, so that some
// are missing by then; no other cell has.
func TestPagesAreMissingInSettle(t *testing.T) {
	for _, c := range []struct {
		mode  string
		phase migration.Phase
		want  []int64
	}{
		{"postcopy", migration.Settle, []int64{cellHeld}},
		{"postcopy", migration.Handover, nil},
		{"", migration.Settle, nil},
	} {
		var asked []int64
		from := anAgent(t, "a", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var limit api.Bandwidth
			switch r.URL.Path {
			case "/v1/migrations/m-1/events":
				json.NewEncoder(w).Encode(record.EventsAnswer{Over: true, Events: []record.Event{ //nolint:errcheck // the test finds out
					{N: 1, Kind: "phase", Phase: migration.Handover}, {N: 2, Kind: "phase", Phase: migration.Settle},
				}})
			case "/v1/migrations/m-1/bandwidth":
				if err := json.NewDecoder(r.Body).Decode(&limit); err != nil {
					t.Error(err)
				}
				asked = append(asked, limit.Bandwidth)
				io.WriteString(w, "{}") //nolint:errcheck // the test finds out
			}
		}))
		run := &cellRun{
			cellWorld: &cellWorld{world: &world{log: slog.New(slog.DiscardHandler)}, mode: c.mode},
			cell:      matrix.Cell{Fault: matrix.Cut3s, Phase: c.phase}, from: from, id: "m-1",
		}
		run.follow(t.Context(), make(chan struct{}))
		if !slices.Equal(asked, c.want) {
			t.Errorf("mode %q, %s: limits %v, want %v", c.mode, c.phase, asked, c.want)
		}
	}
}

// TestSilenceOfACell: connections of a guest in post-copy are given the time that follows from its last page, too.
func TestSilenceOfACell(t *testing.T) {
	for _, c := range []struct {
		mode string
		want float64
	}{{"postcopy", 7}, {"", 1}} {
		run := &cellRun{cellWorld: &cellWorld{mode: c.mode}, seen: &matrix.Seen{ThroughS: 1, SettledS: 7}}
		if got := run.silent(); got != c.want {
			t.Errorf("mode %q: %v s, want %v", c.mode, got, c.want)
		}
	}
}
