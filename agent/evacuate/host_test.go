package evacuate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"godwit/agent/api"
	"godwit/agent/record"
	"godwit/migration"
)

// aHost is an agent of host a, with neighbours b, c of site far and d of site near, whose
// migrations end when the test says so.
type aHost struct {
	mu       sync.Mutex
	guests   []api.GuestInfo
	plans    []string                                          // guest→host, as asked
	plan     func(guest, to string) (record.Report, error)     // nil: everybody takes every guest
	migrate  func(guest, to string) error                      // nil: every request begins
	ends     func(id, guest string) (migration.Outcome, error) // what a migration comes to, when it returns; nil: completed at once
	moves    map[string]*aMove                                 // by id
	running  int
	most     int
	limits   []string      // id rate, as set
	ahead    time.Duration // the host's clock
	restarts chan struct{} // closed as its agent is started again
}

type aMove struct {
	report record.Report
	over   chan struct{}
	begun  time.Time // whatever the host's clock showed
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
	m := &aMove{record.Report{ID: id, Guest: guest, From: from, To: to, Requested: time.Now().Add(h.ahead).UnixNano()}, make(chan struct{}), time.Now()}
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
	case <-h.restarts: // nil: never
		return record.EventsAnswer{Born: 2}, nil
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
	moves := slices.SortedFunc(maps.Values(h.moves), func(x, y *aMove) int { return y.begun.Compare(x.begun) })
	for _, m := range moves {
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
