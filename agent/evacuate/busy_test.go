package evacuate

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"godwit/agent/api"
	"godwit/agent/record"
	"godwit/migration"
)

// TestPlannedGuests: a guest of which somebody makes a plan just now, or with which something else is done, is moved
// when that is over; of one with which it is not, that is said.
func TestPlannedGuests(t *testing.T) {
	for over, want := range map[time.Duration]string{10 * time.Second: "web→b completed", time.Hour: "web→ something else is being done with it (m-0000000p)"} {
		synctest.Test(t, func(t *testing.T) {
			h := &aHost{guests: guests("web")}
			h.guests[0].Migration = "m-0000000p"
			end := time.AfterFunc(over, func() {
				h.mu.Lock()
				defer h.mu.Unlock()
				h.guests[0].Migration = ""
			})
			defer end.Stop()
			result, err := Run(t.Context(), h, Request{To: "far", Width: 1})
			if err != nil {
				t.Fatal(err)
			}
			if got := words(result); !strings.HasPrefix(got, want) || !result.OK && result.Guests[0].Migration != "" {
				t.Errorf("%s (%q), want %s", got, result.Guests[0].Migration, want)
			}
		})
	}
}

// TestNotFreeAfterItsMigration: a guest whose migration by somebody else came to nothing, and which that has still, as
// its QEMU does not answer and it could not be continued, is waited for, and not for ever.
func TestNotFreeAfterItsMigration(t *testing.T) {
	const stays = "idle→b completed\nweb→ migration m-0000000a of it is over (aborted), and has it still"
	for after, want := range map[time.Duration]string{10 * time.Second: "idle→b completed\nweb→b completed", time.Hour: stays} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			h := &aHost{guests: guests("idle", "web")}
			h.ends = func(id, _ string) (migration.Outcome, error) {
				if id == "m-0000000a" {
					return migration.Aborted, nil
				}
				return migration.Completed, nil
			}
			h.mu.Lock()
			h.begin("m-0000000a", "web", "a", "d")
			h.mu.Unlock()
			synctest.Wait()
			h.guests[1].Migration = "m-0000000a"
			free := time.AfterFunc(after, func() {
				h.mu.Lock()
				defer h.mu.Unlock()
				h.guests[len(h.guests)-1].Migration = ""
			})
			defer free.Stop()
			result, err := Run(ctx, h, Request{To: "b", Width: 1})
			if got := words(result); err != nil || ctx.Err() != nil || !strings.HasPrefix(got, want) || result.OK != (want != stays) || !result.OK && result.Guests[1].Migration != "" {
				t.Errorf("free after %v: ok %v, %v, %v\n%s\nwant\n%s", after, result.OK, err, ctx.Err(), got, want)
			}
		})
	}
}

// TestStarvingGuests: a guest that waits for pages of its memory, of which nobody knows whether they ever come, is waited
// for, and not for ever; one whose pages come is moved when it is there.
func TestStarvingGuests(t *testing.T) {
	const stays = "idle→b completed\nweb→ pages of its memory are missing, and do not come (migration m-0000000a of it)"
	for after, want := range map[time.Duration]string{10 * time.Second: "idle→b completed\nweb→b completed", time.Hour: stays} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			h := &aHost{guests: guests("idle", "web")}
			h.ends = func(id, _ string) (migration.Outcome, error) {
				if id == "m-0000000a" {
					time.Sleep(after + 2*otherPatience) // its last page
				}
				return migration.Completed, nil
			}
			h.mu.Lock()
			h.begin("m-0000000a", "web", "d", "a")
			h.guests[1].Migration, h.guests[1].Status = "m-0000000a", api.StatusStarving
			h.mu.Unlock()
			answers := time.AfterFunc(after, func() {
				h.mu.Lock()
				defer h.mu.Unlock()
				h.guests[len(h.guests)-1].Status = "running"
			})
			defer answers.Stop()
			result, err := Run(ctx, h, Request{To: "b", Width: 1})
			if got := words(result); err != nil || ctx.Err() != nil || !strings.HasPrefix(got, want) || result.OK != (want != stays) {
				t.Errorf("answers after %v: ok %v, %v, %v\n%s\nwant\n%s", after, result.OK, err, ctx.Err(), got, want)
			}
			<-h.moves["m-0000000a"].over
		})
	}
}

// TestStarvesMeanwhile: a guest that comes here, and whose pages do not come any more as the agent is started again while
// an evacuation waits for it, stays, with why. It was waited for without end.
func TestStarvesMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		h := &aHost{guests: guests("web"), restarts: make(chan struct{})}
		h.ends = func(string, string) (migration.Outcome, error) {
			<-ctx.Done()
			return migration.Completed, nil
		}
		h.mu.Lock()
		h.begin("m-0000000a", "web", "d", "a")
		h.guests[0].Migration = "m-0000000a"
		h.mu.Unlock()
		go func() {
			time.Sleep(time.Minute)
			h.mu.Lock()
			defer h.mu.Unlock()
			h.guests[0].Status = api.StatusStarving
			close(h.restarts)
		}()
		result, err := Run(ctx, h, Request{To: "b", Width: 1})
		if got := words(result); err != nil || ctx.Err() != nil || result.OK || !strings.Contains(got, "pages of its memory are missing") {
			t.Errorf("ok %v, %v, %v\n%s", result.OK, err, ctx.Err(), got)
		}
		cancel()
		<-h.moves["m-0000000a"].over
	})
}

// TestBusyWith: what else is done with a guest than a migration is not called one.
func TestBusyWith(t *testing.T) {
	for id, want := range map[string]string{"m-00000001": "web→ it is busy with migration m-00000001", "stop": "web→ it is busy with something else (stop)"} {
		h := &aHost{guests: guests("web")}
		h.guests[0].Migration = id
		if result, err := Run(t.Context(), h, Request{DryRun: true}); err != nil || words(result) != want {
			t.Errorf("%s, %v, want %s", words(result), err, want)
		}
	}
}

// TestBusySinceTheRoundBegan: hours may pass between the look at a host's guests and a guest's own move. One that
// somebody else moves by then, or plans to, is waited for, and moved where it stays.
func TestBusySinceTheRoundBegan(t *testing.T) {
	for name, when := range map[string]func(h *aHost, others func() error){
		"when it is planned": func(h *aHost, others func() error) {
			h.plan = func(string, string) (record.Report, error) { return record.Report{}, others() }
		},
		"when it is to move": func(h *aHost, others func() error) { h.migrate = func(string, string) error { return others() } },
	} {
		synctest.Test(t, func(t *testing.T) {
			h := &aHost{guests: guests("web"), ends: func(id, _ string) (migration.Outcome, error) {
				time.Sleep(time.Minute)
				if id == "m-0000000a" {
					return migration.Aborted, nil
				}
				return migration.Completed, nil
			}}
			asked := 0
			when(h, func() error {
				if asked++; asked > 2 { // both hosts were asked
					return nil
				}
				h.mu.Lock()
				defer h.mu.Unlock()
				if h.guests[0].Migration == "" {
					h.guests[0].Migration = "m-0000000a"
					h.begin("m-0000000a", "web", "a", "d")
				}
				return refusal(migration.CodeBusy, "migration m-0000000a of it is under way")
			})
			result, err := Run(t.Context(), h, Request{To: "far", Width: 1})
			if got := words(result); err != nil || !strings.HasSuffix(got, "completed") {
				t.Errorf("%s: %s, %v", name, got, err)
			}
		})
	}
}

// TestStoppedGuests: of a guest that somebody stops, or lets go of, meanwhile no migration is said to run.
func TestStoppedGuests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &aHost{guests: guests("idle", "web")}
		h.guests[1].Migration = "stop"
		time.AfterFunc(10*time.Second, func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.guests = nil
		})
		result, err := Run(t.Context(), h, Request{To: "b", Width: 1})
		if got, want := words(result), "idle→b completed\nweb→ it is not under care on a any more:"; err != nil || result.OK || !strings.HasPrefix(got, want) || result.Guests[1].Migration != "" {
			t.Errorf("ok %v, %v\n%s\nwant\n%s", result.OK, err, got, want)
		}
	})
}

// TestMovedMeanwhile: of a guest with which something was done, and that somebody moves then, it is said where it is;
// where it stayed, and was stopped, that.
func TestMovedMeanwhile(t *testing.T) {
	for outcome, want := range map[migration.Outcome]string{migration.Completed: "web→d completed", migration.Aborted: "web→ it is not under care on a any more:"} {
		synctest.Test(t, func(t *testing.T) {
			h := &aHost{guests: guests("idle", "web")}
			h.ends = func(id, _ string) (migration.Outcome, error) {
				if id == "m-0000000a" {
					return outcome, nil
				}
				return migration.Completed, nil
			}
			h.guests[1].Migration = "m-0000000p" // a plan
			time.AfterFunc(10*time.Second, func() {
				h.mu.Lock()
				defer h.mu.Unlock()
				h.begin("m-0000000a", "web", "a", "d")
				if outcome == migration.Aborted {
					h.guests = nil
				}
			})
			result, err := Run(t.Context(), h, Request{To: "b", Width: 1})
			if got, want := words(result), "idle→b completed\n"+want; err != nil || result.OK != (outcome == migration.Completed) || !strings.HasPrefix(got, want) {
				t.Errorf("%s: ok %v, %v\n%s\nwant\n%s", outcome, result.OK, err, got, want)
			}
		})
	}
}

// TestMovedAgain: of a guest that somebody else's migration left here, or brought, and that another moved away before
// it was looked at again, it is said where it is, or by what it goes there; where it was let go of instead, that.
func TestMovedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		from, to string // of the first migration
		first    migration.Outcome
		then     string // "moved" by another one, "moves" by it still, or "let go"
		want     string
	}{
		"aborted, and moved then":        {"a", "d", migration.Aborted, "moved", "web→c completed"},
		"aborted, and moves now":         {"a", "d", migration.Aborted, "moves", "web→ migration m-0000000b still runs"},
		"aborted, and let go of then":    {"a", "d", migration.Aborted, "let go", "web→ it is not under care on a any more:"},
		"brought here, and moved then":   {"d", "a", migration.Completed, "moved", "web→c completed"},
		"brought here, let go of then":   {"d", "a", migration.Completed, "let go", "web→ it is not under care on a any more:"},
		"lost here as it came":           {"d", "a", migration.Failed, "let go", "web→a failed"},
		"in doubt where it was to go to": {"a", "d", migration.InDoubt, "let go", "web→d in_doubt in doubt whether it runs on d"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, over := &aHost{guests: guests("idle", "web")}, make(chan struct{})
				defer close(over)
				h.ends = func(id, guest string) (migration.Outcome, error) {
					switch {
					case id == "m-0000000a":
						time.Sleep(10 * time.Second)
						return c.first, nil
					case guest == "idle":
						time.Sleep(time.Minute)
					case c.then == "moves":
						<-over
					}
					return migration.Completed, nil
				}
				h.guests[1].Migration = "m-0000000a"
				h.mu.Lock()
				h.begin("m-0000000a", "web", c.from, c.to)
				h.mu.Unlock()
				time.AfterFunc(30*time.Second, func() {
					h.mu.Lock()
					defer h.mu.Unlock()
					if c.then != "let go" {
						h.begin("m-0000000b", "web", "a", "c")
					}
					if c.then != "moved" {
						h.guests = h.guests[:1]
					}
				})
				result, err := Run(t.Context(), h, Request{To: "b", Width: 1})
				if got, want := words(result), "idle→b completed\n"+c.want; err != nil || result.OK != (c.then == "moved") || !strings.HasPrefix(got, want) {
					t.Errorf("ok %v, %v\n%s\nwant\n%s", result.OK, err, got, want)
				}
			})
		})
	}
}

// TestBusyGuests: a guest that arrives, or leaves by somebody else's migration, is waited for; the first
// is moved then.
func TestBusyGuests(t *testing.T) {
	host := &aHost{guests: guests("comes", "goes", "idle")}
	gate := make(chan struct{})
	host.ends = func(id, _ string) (migration.Outcome, error) {
		if id == "m-00000001" || id == "m-00000002" {
			<-gate
		}
		return migration.Completed, nil
	}
	host.guests[0].Migration, host.guests[1].Migration = "m-00000001", "m-00000002"
	host.mu.Lock()
	host.begin("m-00000001", "comes", "d", "a")
	host.begin("m-00000002", "goes", "a", "c")
	host.mu.Unlock()
	moved := false
	got, err := Run(t.Context(), host, Request{To: "b", Width: 2, Tell: func(g Guest) {
		if g.Guest == "idle" && g.Moved() && !moved {
			moved = true
			close(gate)
		}
	}})
	if want := "comes→b completed\ngoes→c completed\nidle→b completed"; err != nil || !got.OK || words(got) != want {
		t.Errorf("ok %v, %v\n%s\nwant\n%s", got.OK, err, words(got), want)
	}
}
