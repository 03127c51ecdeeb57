package lab

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	"godwit/agent/record"
	"godwit/lab/scenario"
	"godwit/migration"
)

// TestEventsAreHeardOnce: what an agent has told is not heard again where an answer of it is lost; what the next agent
// tells is, which counts anew.
func TestEventsAreHeardOnce(t *testing.T) {
	names := func(said ...migration.EventName) (all []record.Event) {
		for i, name := range said {
			all = append(all, record.Event{N: i + 1, At: int64(i + 1), Kind: "event", Name: name})
		}
		return all
	}
	one := names(migration.PreMigrationStart, migration.PreSourceSuspend, migration.SourceSuspend)
	for name, c := range map[string]struct {
		second int64 // the record's, after the answer that is lost
		events []record.Event
		want   []migration.EventName
	}{
		"the same agent": {1, one, []migration.EventName{migration.PreMigrationStart, migration.PreSourceSuspend, migration.SourceSuspend}},
		"the next agent": {2, names(migration.MigrationDone), []migration.EventName{migration.PreMigrationStart, migration.PreSourceSuspend, migration.MigrationDone}},
	} {
		r, asked := aRun(), 0
		mux := http.NewServeMux()
		mux.HandleFunc("GET /v1/migrations/{id}/events", func(w http.ResponseWriter, q *http.Request) {
			after, _ := strconv.Atoi(q.FormValue("after"))
			part := record.EventsAnswer{Born: 1, Events: one[:2]}
			switch asked++; asked {
			case 1:
			case 2:
				http.Error(w, "lost", http.StatusBadGateway)
				return
			default:
				part = record.EventsAnswer{Born: c.second, Events: c.events[min(max(after, 0), len(c.events)):], Over: true}
			}
			json.NewEncoder(w).Encode(part) //nolint:errcheck // the client tells
		})
		mux.HandleFunc("GET /v1/migrations/{id}", func(w http.ResponseWriter, _ *http.Request) {
			json.NewEncoder(w).Encode(record.Report{Ended: 1, Outcome: migration.Completed}) //nolint:errcheck // as above
		})
		r.hasWeb(t, mux)
		m := &move{guest: "web", from: "a", to: "a", id: "m-00000001", done: make(chan struct{})}
		done := make(chan struct{})
		host := r.w.agents["a"]
		host.done = done
		r.follow(t.Context(), host, m)
		var got []migration.EventName
		for _, e := range m.events {
			got = append(got, e.Name)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: heard %v, want %v", name, got, c.want)
		}
	}
}

// TestDoubtIsLookedAtOften: an agent that is in doubt tells nothing new, and may wait for that as long as it likes: it
// is asked for what it has told.
func TestDoubtIsLookedAtOften(t *testing.T) {
	r := aRun()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // the test's own end
	defer cancel()
	var asked []string
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/migrations/{id}/events", func(w http.ResponseWriter, q *http.Request) {
		if asked = append(asked, q.FormValue("after")); len(asked) == 2 {
			cancel()
		}
		json.NewEncoder(w).Encode(record.EventsAnswer{Born: 1, Events: []record.Event{{N: 1, At: 1, Kind: "event", Name: migration.SourceSuspend}}}) //nolint:errcheck // the client tells
	})
	mux.HandleFunc("GET /v1/migrations/{id}", func(w http.ResponseWriter, _ *http.Request) {
		json.NewEncoder(w).Encode(record.Report{ID: "m-00000001", Outcome: migration.InDoubt}) //nolint:errcheck // as above
	})
	mux.HandleFunc("GET /v1/doubts", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("[]")) }) //nolint:errcheck // as above
	r.hasWeb(t, mux)
	m := &move{guest: "web", from: "a", to: "a", id: "m-00000001", step: &scenario.Migrate{Guest: "web", To: "a"}, done: make(chan struct{})}
	r.follow(ctx, r.w.agents["a"], m)
	if !slices.Equal(asked, []string{"0", "0"}) {
		t.Errorf("asked for what came after %q, want twice for all", asked)
	}
}
