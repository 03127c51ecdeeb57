package evacuate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"godwit/agent/api"
	"godwit/agent/record"
	"godwit/migration"
)

// An aHost is an agent of host a, with neighbours b, c of site far and d of site near, whose
// migrations end when the test says so.
type aHost struct {
	mu      sync.Mutex
	guests  []api.GuestInfo
	plans   []string                                          // guest→host, as asked
	plan    func(guest, to string) (record.Report, error)     // nil: everybody takes every guest
	migrate func(guest, to string) error                      // nil: every request begins
	ends    func(id, guest string) (migration.Outcome, error) // what a migration comes to, when it returns; nil: completed at once
	moves   map[string]*aMove                                 // by id
	running int
	most    int
	limits  []string // id rate, as set
}

type aMove struct {
	report record.Report
	over   chan struct{}
}

func (h *aHost) Host(context.Context) (api.HostInfo, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return api.HostInfo{Host: "a", Site: "here", Guests: slices.Clone(h.guests), Neighbours: []api.NeighbourInfo{
		{Host: "b", Site: "far"}, {Host: "c", Site: "far"}, {Host: "d", Site: "near"},
	}}, nil
}

func (h *aHost) Plan(_ context.Context, req migration.Request) (record.Report, error) {
	h.mu.Lock()
	h.plans = append(h.plans, req.Guest+"→"+req.To)
	h.mu.Unlock()
	if h.plan == nil {
		return record.Report{Predicted: &record.Prediction{MigrationS: 5}}, nil
	}
	return h.plan(req.Guest, req.To)
}

func (h *aHost) Migrate(_ context.Context, req migration.Request) (string, error) {
	if h.migrate != nil {
		if err := h.migrate(req.Guest, req.To); err != nil {
			return "", err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	id := fmt.Sprintf("m-%08d", len(h.moves)+1)
	h.begin(id, req.Guest, "a", req.To)
	h.limits = append(h.limits, fmt.Sprint(id, " ", req.Bandwidth))
	return id, nil
}

// begin is a migration that has begun; mu is held.
func (h *aHost) begin(id, guest, from, to string) {
	if h.moves == nil {
		h.moves = map[string]*aMove{}
	}
	m := &aMove{record.Report{ID: id, Guest: guest, From: from, To: to, Requested: time.Now().UnixNano()}, make(chan struct{})}
	h.moves[id] = m
	h.running++
	h.most = max(h.most, h.running)
	go func() {
		outcome, err := migration.Completed, error(nil)
		if h.ends != nil {
			outcome, err = h.ends(id, guest)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.running--
		m.report.Outcome, m.report.Ended = outcome, m.report.Requested+2e9
		if err != nil {
			m.report.Problem = &migration.Problem{Code: migration.CodeGuest, Text: err.Error()}
			errors.As(err, &m.report.Problem)
		}
		h.guests = slices.DeleteFunc(h.guests, func(g api.GuestInfo) bool { return g.Name == guest && from == "a" && outcome == migration.Completed })
		for i := range h.guests {
			if h.guests[i].Name == guest {
				h.guests[i].Migration = ""
			}
		}
		close(m.over)
	}()
}

func (h *aHost) Events(ctx context.Context, id string, after int) (record.EventsAnswer, error) {
	h.mu.Lock()
	m := h.moves[id]
	h.mu.Unlock()
	if m == nil {
		return record.EventsAnswer{}, refusal(migration.CodeUsage, "migration "+id+": not known")
	}
	if after == 0 {
		return record.EventsAnswer{Born: 1, Events: []record.Event{{N: 1, Kind: "phase", Phase: migration.Check}}}, nil
	}
	select {
	case <-m.over:
		return record.EventsAnswer{Born: 1, Over: true}, nil
	case <-ctx.Done():
		return record.EventsAnswer{}, ctx.Err()
	}
}

func (h *aHost) Report(_ context.Context, id string) (record.Report, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.moves[id] == nil {
		return record.Report{}, refusal(migration.CodeUsage, "migration "+id+": not known")
	}
	return h.moves[id].report, nil
}

func (h *aHost) Reports(context.Context) (all []record.Report, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range h.moves {
		all = append(all, m.report)
	}
	return all, nil
}

func (h *aHost) SetBandwidth(_ context.Context, id string, bits int64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.limits = append(h.limits, fmt.Sprint(id, " ", bits))
	return nil
}

func guests(names ...string) []api.GuestInfo {
	var out []api.GuestInfo
	for _, n := range names {
		out = append(out, api.GuestInfo{Name: n, Memory: 1 << 30})
	}
	return out
}

// words are what became of all guests, a line each.
func words(r Result) string {
	var out []string
	for _, g := range r.Guests {
		out = append(out, strings.Join(strings.Fields(fmt.Sprintf("%s→%s %s %s", g.Guest, g.To, g.Outcome, g.Reason)), " "))
	}
	return strings.Join(out, "\n")
}

func refusal(code migration.Code, text string) error {
	return &migration.Problem{Code: code, Text: text}
}

// TestLostAnswer: an agent that is started again as it is asked for a migration has begun it, or has not.
func TestLostAnswer(t *testing.T) {
	lost := errors.New("ask agent at /run/godwit/agent.sock: EOF")
	began := &aHost{guests: guests("x")}
	began.migrate = func(guest, to string) error { // it begins, and nobody hears of it
		began.mu.Lock()
		defer began.mu.Unlock()
		began.begin("m-0000000a", guest, "a", to)
		began.guests[0].Migration = "m-0000000a"
		return lost
	}
	known := make(chan struct{})
	began.ends = func(string, string) (migration.Outcome, error) { <-known; return migration.Completed, nil }
	quick := &aHost{guests: guests("x")} // it has left before anybody can look
	quick.migrate = func(guest, to string) error {
		quick.mu.Lock()
		defer quick.mu.Unlock()
		quick.begin("m-0000000b", guest, "a", to)
		return lost
	}
	gone := &aHost{guests: guests("x")} // it came by an earlier migration, and its QEMU ended with the agent
	gone.migrate = func(guest, _ string) error {
		gone.mu.Lock()
		defer gone.mu.Unlock()
		gone.moves = map[string]*aMove{"m-0000000c": {record.Report{ID: "m-0000000c", Guest: guest, From: "b", To: "a", Requested: 1, Outcome: migration.Completed}, make(chan struct{})}}
		gone.guests = nil
		return lost
	}
	if got, err := Run(t.Context(), gone, Request{To: "b"}); err != nil || got.OK || got.Guests[0].Moved() {
		t.Errorf("it is gone, and nobody moved it: %+v, %v", got, err)
	}
	times := 0
	again := &aHost{guests: guests("x")}
	again.migrate = func(string, string) error {
		if times++; times > 1 {
			return nil
		}
		return lost
	}
	for name, host := range map[string]*aHost{"it had begun": began, "it had not": again, "it was over": quick} {
		got, err := Run(t.Context(), host, Request{To: "b", Tell: func(g Guest) {
			if g.Migration == "m-0000000a" && g.Outcome == "" && g.Phase == "" {
				close(known)
			}
		}})
		if err != nil || !got.OK || words(got) != "x→b completed" || len(host.moves) != 1 {
			t.Errorf("%s: %+v, %v, %d migrations", name, got, err, len(host.moves))
		}
	}
}

func TestRun(t *testing.T) {
	cannot := func(guest, to string) (record.Report, error) {
		return record.Report{}, refusal(migration.CodeGuest, "guest "+guest+" cannot move")
	}
	for name, c := range map[string]struct {
		host *aHost
		req  Request
		ok   bool
		want string
	}{
		"no guests":                   {&aHost{}, Request{}, true, ""},
		"all move, shared out":        {&aHost{guests: guests("x", "y", "z")}, Request{}, true, "x→b completed\ny→c completed\nz→d completed"},
		"to a site":                   {&aHost{guests: guests("x", "y")}, Request{To: "near"}, true, "x→d completed\ny→d completed"},
		"to a host":                   {&aHost{guests: guests("x", "y")}, Request{To: "c"}, true, "x→c completed\ny→c completed"},
		"a dry run":                   {&aHost{guests: guests("x")}, Request{DryRun: true}, true, "x→b"},
		"a dry run that would not do": {&aHost{guests: guests("x"), plan: cannot}, Request{DryRun: true}, false, "x→ guest x cannot move"},
		"nothing takes it, the other moves": {&aHost{guests: guests("x", "y"), plan: func(guest, to string) (record.Report, error) {
			if guest == "x" {
				return cannot(guest, to)
			}
			return record.Report{Predicted: &record.Prediction{}}, nil
		}}, Request{}, false, "x→ guest x cannot move\ny→b completed"},
		"memory for one only": {&aHost{guests: guests("x", "y"), plan: func(string, string) (record.Report, error) {
			free := int64(3 << 29)
			return record.Report{Free: &free}, nil
		}}, Request{To: "b"}, false, "x→b completed\ny→ no memory is left for it beside the other guests (b); free some, or name another destination"},
		"refused there, taken elsewhere": {&aHost{guests: guests("x"), migrate: func(_, to string) error {
			if to != "d" {
				return refusal(migration.CodeBusy, to+" is busy")
			}
			return nil
		}}, Request{}, true, "x→d completed"},
		"refused everywhere": {&aHost{guests: guests("x"), migrate: func(_, to string) error { return refusal(migration.CodeBusy, to+" is busy") }},
			Request{}, false, "x→d refused d is busy"},
		"aborted: nothing else is tried": {&aHost{guests: guests("x"), ends: func(string, string) (migration.Outcome, error) {
			return migration.Aborted, fmt.Errorf("aborted on request")
		}}, Request{}, false, "x→b aborted aborted on request"},
		"in doubt": {&aHost{guests: guests("x"), ends: func(string, string) (migration.Outcome, error) { return migration.InDoubt, nil }},
			Request{}, false, "x→b in_doubt in doubt whether it runs on b; see `godwit recover m-00000001`"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.req.Width = 2
			got, err := Run(t.Context(), c.host, c.req)
			if err != nil || got.OK != c.ok || words(got) != c.want {
				t.Errorf("ok %v, %v\n%s\nwant %v\n%s", got.OK, err, words(got), c.ok, c.want)
			}
			if c.req.DryRun && len(c.host.moves) > 0 {
				t.Errorf("a dry run moved %d guests", len(c.host.moves))
			}
			if c.host.most > 2 {
				t.Errorf("%d moved at once", c.host.most)
			}
		})
	}
}

// TestRefusalsAreTold: each host that refuses is said with its reason, and what the next one is asked
// for is no part of that. What the source itself refuses, or somebody, no other host is asked for.
func TestRefusalsAreTold(t *testing.T) {
	const begins = "x→b\nx→b m-00000001\nx→b m-00000001 check"
	next := func(n int) string {
		return fmt.Sprintf("\nx→c\nx→c m-%08[1]d\nx→c m-%08[1]d check\nx→c m-%08[1]d check completed", n)
	}
	for name, c := range map[string]struct {
		code  migration.Code
		early bool // as it is asked for, and not in its check
		want  string
	}{
		"by a destination":          {migration.CodeCapacity, false, begins + "\nx→b m-00000001 check refused no" + next(2)},
		"by a destination, at once": {migration.CodeBusy, true, "x→b\nx→b refused no" + next(1)},
		"for the path to that host": {migration.CodePath, true, "x→b\nx→b refused no" + next(1)},
		"by a hook":                 {migration.CodeHook, false, begins + "\nx→b m-00000001 check refused no"},
		"as the guest cannot":       {migration.CodeGuest, false, begins + "\nx→b m-00000001 check refused no"},
		"by a person":               {migration.CodeAsked, false, begins + "\nx→b m-00000001 check refused no"},
		"as there is no such guest": {migration.CodeUnknownGuest, true, "x→b\nx→b refused no"},
	} {
		t.Run(name, func(t *testing.T) {
			host, asked := &aHost{guests: guests("x")}, 0
			no := refusal(c.code, "no")
			if c.early {
				host.migrate = func(string, string) error {
					if asked++; asked == 1 {
						return no
					}
					return nil
				}
			} else {
				host.ends = func(id, _ string) (migration.Outcome, error) {
					if id == "m-00000001" {
						return migration.Refused, no
					}
					return migration.Completed, nil
				}
			}
			var told []string
			_, err := Run(t.Context(), host, Request{To: "far", Width: 1, Tell: func(g Guest) {
				told = append(told, strings.Join(strings.Fields(fmt.Sprintf("%s→%s %s %s %s %s", g.Guest, g.To, g.Migration, g.Phase, g.Outcome, g.Reason)), " "))
			}})
			if got := strings.Join(told, "\n"); err != nil || got != c.want {
				t.Errorf("%v\n%s\nwant\n%s", err, got, c.want)
			}
		})
	}
}

func TestWrongDestinations(t *testing.T) {
	host := &aHost{guests: guests("x")}
	for to, want := range map[string]string{"here": "already", "a": "already", "e": "known: b, c, d"} {
		if _, err := Run(t.Context(), host, Request{To: to, Width: 1}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", to, err, want)
		}
	}
	if len(host.plans) > 0 {
		t.Errorf("asked %v", host.plans)
	}
}

// A host that does not answer is waited for once, not by every guest.
func TestASilentHostIsAskedOnce(t *testing.T) {
	host := &aHost{guests: guests("x", "y", "z"), plan: func(_, to string) (record.Report, error) {
		if to != "c" {
			return record.Report{}, refusal(migration.CodePeer, "host "+to+" does not answer")
		}
		return record.Report{Predicted: &record.Prediction{}}, nil
	}}
	got, err := Run(t.Context(), host, Request{Width: 1})
	if want := "x→c completed\ny→c completed\nz→c completed"; err != nil || words(got) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, words(got), want)
	}
	if want := []string{"x→b", "x→c", "x→d", "y→c", "z→c"}; !slices.Equal(host.plans, want) {
		t.Errorf("asked %v, want %v", host.plans, want)
	}
}

// When ctx ends nothing more begins, and what runs is named.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	stay := make(chan struct{})
	t.Cleanup(func() { close(stay) })
	host := &aHost{guests: guests("x", "y", "z"), ends: func(string, string) (migration.Outcome, error) {
		<-stay
		return migration.Completed, nil
	}}
	begun := 0
	got, err := Run(ctx, host, Request{To: "b", Width: 2, Tell: func(g Guest) {
		if g.Phase == migration.Check {
			if begun++; begun == 2 {
				cancel()
			}
		}
	}})
	if err != nil || got.OK || len(host.moves) != 2 {
		t.Errorf("ok %v, %d of 2 began, %v", got.OK, len(host.moves), err)
	}
	for i, want := range []string{"still runs; `godwit watch m-0000000", "still runs; `godwit watch m-0000000", "interrupted before its migration began"} {
		if g := got.Guests[i]; !strings.Contains(g.Reason, want) || g.Outcome != "" {
			t.Errorf("%+v: want %q as its reason", g, want)
		}
	}
}

// A guest that arrives, or leaves by somebody else's migration, is waited for; the first
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

// The bandwidth is of all together: two share it, and the last has it alone.
func TestBandwidthIsShared(t *testing.T) {
	second, both := make(chan struct{}), make(chan struct{})
	host := &aHost{guests: guests("x", "y")}
	host.ends = func(id, _ string) (migration.Outcome, error) {
		if id == "m-00000002" {
			close(both)
			<-second
		}
		<-both
		return migration.Completed, nil
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 1000 { // until the second has been told of its new limit
			host.mu.Lock()
			told := slices.Contains(host.limits, "m-00000002 100000")
			host.mu.Unlock()
			if told {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
		close(second)
	}()
	if _, err := Run(t.Context(), host, Request{To: "b", Width: 2, Bandwidth: 100_000}); err != nil {
		t.Fatal(err)
	}
	<-done
	for _, want := range []string{"m-00000001 50000", "m-00000002 50000", "m-00000002 100000"} {
		if !slices.Contains(host.limits, want) {
			t.Errorf("limits %v, want %s", host.limits, want)
		}
	}
}
