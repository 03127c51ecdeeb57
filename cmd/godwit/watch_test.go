package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"unicode"

	"godwit/agent/api"
	"godwit/agent/record"
	"godwit/migration"
)

// watched is an agent that tells the whole of one migration, which completed.
func watched(t *testing.T) (socket string) {
	t.Helper()
	return watchedTo(t, record.Report{ID: "m-00000001", Outcome: migration.Completed})
}

// watchedTo is the same of one that ended by that report.
func watchedTo(t *testing.T, end record.Report) (socket string) {
	t.Helper()
	progress, err := json.Marshal(record.CopyProgress{What: record.CopyOfMemory, Total: 200_000_000, Remaining: 100_000_000, Rate: 12_500_000, DirtyRate: new(int64(1_250_000)), Round: 2, LeftS: 8.1})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/migrations/{id}/events", func(w http.ResponseWriter, r *http.Request) {
		all := []record.Event{
			{Kind: "phase", Phase: migration.Check}, {Kind: "note", Text: "a remark"}, {Kind: "event", Name: migration.MigrationStart},
			{Kind: "phase", Phase: migration.Copy}, {Kind: "progress", Data: progress}, {Kind: "progress", Data: json.RawMessage(`{"later": 1}`)},
			{Kind: "outcome", Text: "completed"},
		}
		for i := range all {
			all[i].N, all[i].At, all[i].Host = i+1, int64(i), "paris"
		}
		if r.FormValue("after") != "0" {
			all = nil
		}
		json.NewEncoder(w).Encode(record.EventsAnswer{Events: all, Over: true}) //nolint:errcheck // the client tells
	})
	mux.HandleFunc("GET /v1/migrations/{id}", func(w http.ResponseWriter, _ *http.Request) {
		json.NewEncoder(w).Encode(end) //nolint:errcheck // the client tells
	})
	mux.HandleFunc("POST /v1/migrations", func(w http.ResponseWriter, _ *http.Request) {
		json.NewEncoder(w).Encode(api.MigrateAnswer{ID: end.ID}) //nolint:errcheck // the client tells
	})
	return serveAgent(t, mux)
}

// TestWatchInWords: a person reads one line for each event, with the phase and the figures in words.
func TestWatchInWords(t *testing.T) {
	var out bytes.Buffer
	if status := run([]string{"watch", "m-00000001", "--socket", watched(t)}, &out, io.Discard); status != exitDone {
		t.Fatalf("status %d: %s", status, &out)
	}
	want := []string{"phase check", "a remark", "MIGRATION_START", "phase copy",
		"copy: memory 50 % of 200 MB, round 2, 100 Mbit/s, the guest writes 10 Mbit/s, about 8.1 s left", `{"later": 1}`, "completed"}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != len(want) {
		t.Fatalf("%d lines, want %d:\n%s", len(lines), len(want), &out)
	}
	for i := range want {
		if host, text, _ := strings.Cut(lines[i], "  paris        "); len(host) != len("15:04:05.000") || strings.ReplaceAll(text, `:1}`, `: 1}`) != want[i] {
			t.Errorf("line %d is %q, want %q at its end", i, lines[i], want[i])
		}
	}
}

// TestWatchAsJSON: for a program each line is an object, the events as the agent told them, and the
// last is the report.
func TestWatchAsJSON(t *testing.T) {
	socket := watched(t)
	for _, line := range []string{"watch m-00000001", "migrate web b --watch"} {
		var out bytes.Buffer
		if status := run(append(strings.Fields(line), "--json", "--socket", socket), &out, io.Discard); status != exitDone {
			t.Fatalf("status %d: %s", status, &out)
		}
		var kinds []string
		var seen record.CopyProgress
		var end *record.Report
		for one := range strings.Lines(out.String()) {
			var e struct {
				record.Event
				Report *record.Report `json:"report"`
			}
			if err := json.Unmarshal([]byte(one), &e); err != nil || end != nil {
				t.Fatalf("%s: line %q after report %v: %v", line, one, end, err)
			}
			if end = e.Report; end == nil {
				kinds = append(kinds, e.Kind)
			}
			if e.Kind == "progress" && seen.Total == 0 {
				if err := json.Unmarshal(e.Data, &seen); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got := strings.Join(kinds, " "); got != "phase note event phase progress progress outcome" || seen.DirtyRate == nil || *seen.DirtyRate != 1_250_000 {
			t.Errorf("%s: %s; %+v", line, got, seen)
		}
		if end == nil || end.ID != "m-00000001" || end.Outcome != migration.Completed {
			t.Errorf("%s ends with report %+v", line, end)
		}
	}
}

// Without --watch the status says that a migration has begun, with it what became of it; the help
// says which is which.
func TestStatusOfMigrate(t *testing.T) {
	refused := record.Report{ID: "m-00000001", Outcome: migration.Refused, Problem: &migration.Problem{Code: migration.CodeCapacity, Text: "host b is full"}}
	socket := watchedTo(t, refused)
	for line, want := range map[string]int{"migrate web b": exitDone, "migrate web b --watch": exitFailed, "watch m-00000001": exitFailed} {
		if status := run(append(strings.Fields(line), "--socket", socket), io.Discard, io.Discard); status != want {
			t.Errorf("godwit %s: status %d, want %d", line, status, want)
		}
	}
	var help bytes.Buffer
	if run([]string{"migrate", "--help"}, &help, io.Discard); !strings.Contains(help.String(), "without it 0 begun") {
		t.Errorf("the help does not say it:\n%s", &help)
	}
}

// TestUglyProgress: what another host counts does nothing to a terminal, and fits on it.
func TestUglyProgress(t *testing.T) {
	for _, data := range []string{
		"{\"later\":\n\"\u009b31m\u202e\"}", `{"what": "\u001b[31m\n"}`, `{"what": "memory", "total": 9, "data_path": {"paths": [{"path": "\u001b[31m", "lanes": 1}]}}`,
		`{"later": "` + strings.Repeat("x", 60<<10) + `"}`,
	} {
		said := eventText(record.Event{Kind: "progress", Data: json.RawMessage(data)}, migration.Copy)
		if said == "" || len(said) > 2100 || strings.ContainsFunc(said, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%.300q: %.3000q", data, said)
		}
	}
}
