package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"godwit/lab/scenario"
	"godwit/migration"
)

// guestLeaves has the first n commands for guest web run on this machine; below 0: the first is not answered. Then its
// agent has no such guest, but host b's has one; each time it is asked, something happens before it says so.
func guestLeaves(t *testing.T, r *run, n int, happens func(call int)) {
	t.Helper()
	aGuestHere(t, r)
	here, calls, gone := r.w.agents["a"], 0, 0
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/guests/web/call", func(w http.ResponseWriter, q *http.Request) {
		var call, answer json.RawMessage
		if calls++; n < 0 && calls == 1 { // what became of it is not heard
			w.WriteHeader(http.StatusBadGateway)
		} else if calls > n {
			gone++
			happens(gone)
			w.WriteHeader(http.StatusConflict)
			json.NewEncoder(w).Encode(migration.Problem{Code: migration.CodeUnknownGuest, Text: "guest web: not under care"}) //nolint:errcheck // the client tells
		} else if json.NewDecoder(q.Body).Decode(&call) != nil || here.client.Do(q.Context(), q.Method, q.URL.Path, call, &answer) != nil {
			w.WriteHeader(http.StatusBadRequest)
		} else {
			w.Write(answer) //nolint:errcheck // the client tells
		}
	})
	r.hasWeb(t, mux)
	r.w.agents["b"] = here
}

// TestCommandThatEndsItsGuest: a command is not waited for once its guest has ended, and none can be begun there; where
// the guest is nowhere as it moves, or is booted again, it is.
func TestCommandThatEndsItsGuest(t *testing.T) {
	moves, boots := func(r *run) { r.queued("web") }, func(r *run) { r.toBoot("web", nil) }
	others := func(r *run) {
		r.acts++ // a flow that begins later, a step some time after a phase, a client on its way
		r.toBoot("db", nil)
	}
	arrives := func(r *run, call int) {
		if call == 2 {
			r.w.moved("web", "b")
			r.mu.Lock()
			close(r.queue["web"])
			r.mu.Unlock()
		}
	}
	isNotBooted := func(r *run, call int) {
		if call == 2 {
			r.mu.Lock()
			delete(r.booting, "web")
			r.mu.Unlock()
		}
	}
	for name, c := range map[string]struct {
		answers int // before the guest is gone
		before  func(*run)
		happens func(*run, int)
		asked   int // how often it was when it was gone
		want    string
		told    bool // that it has ended
	}{
		"ends":               {answers: 2, asked: 1, told: true},
		"had ended before":   {asked: 1, want: "the guest has ended"},
		"ends as it begins":  {answers: -1, asked: 1, told: true},
		"moves":              {answers: 2, before: moves, happens: arrives, asked: 2},
		"moves first":        {before: moves, happens: arrives, asked: 2},
		"has just moved":     {answers: 2, happens: func(r *run, _ int) { r.w.moved("web", "b") }, asked: 1},
		"others are to come": {answers: 2, before: others, asked: 1, told: true},
		"is not booted":      {answers: 2, before: boots, happens: isNotBooted, asked: 3, told: true},
	} {
		t.Run(name, func(t *testing.T) {
			r, asked, told := aRun(), 0, ""
			r.opts.Tell = func(line string) { told += line }
			guestLeaves(t, r, c.answers, func(call int) {
				if asked = call; c.happens != nil {
					c.happens(r, call)
				}
			})
			if c.before != nil {
				c.before(r)
			}
			execsSoFar++
			r.execs = execsSoFar
			dir := fmt.Sprintf("/tmp/godwit-exec-%d", r.execs+1)
			t.Cleanup(func() { os.RemoveAll(dir) })
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			err := r.execStep(ctx, &scenario.Exec{Guest: "web", Command: "sleep 0.5"})
			if (err == nil) != (c.want == "") || err != nil && err.Error() != c.want {
				t.Errorf("%v, want %q", err, c.want)
			}
			if asked != c.asked || strings.Contains(told, "the guest has ended") != c.told {
				t.Errorf("asked %d times once it was gone, want %d; told %q", asked, c.asked, told)
			}
		})
	}
}
