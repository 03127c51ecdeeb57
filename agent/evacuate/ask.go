// Package evacuate moves every guest of a host away, as a client of that host's agent:
// each guest by a migration of its own, which the agents carry on by themselves. What
// decides where each goes is policy.Evacuate.
package evacuate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"godwit/agent/api"
	"godwit/agent/record"
	"godwit/internal/clock"
	"godwit/migration"
	"godwit/policy"
)

// Planner says what a migration would be; *agent.Client is one.
type Planner interface {
	Plan(context.Context, migration.Request) (record.Report, error)
}

// Move is where one guest goes.
type Move struct {
	Guest string
	To    []Destination // the chosen one, then what else it could take, best first
	Why   string        // where To is empty: why nothing takes it, in one line
}

// Destination is a host that takes a guest.
type Destination struct {
	Host      string
	Predicted *record.Prediction // nil: nobody was asked
}

// Destinations are the hosts that guests may go to: those of the site, or the host, to;
// "": every other. None of avoid is among them. Its error is the asker's.
func Destinations(info api.HostInfo, to string, avoid []string) ([]string, error) {
	wrong := func(code migration.Code, format string, a ...any) error {
		return &migration.Problem{Code: code, Text: "evacuate " + info.Host + ": " + fmt.Sprintf(format, a...)}
	}
	var out, known []string
	for _, n := range info.Neighbours {
		known = append(known, n.Host)
		if (to == "" || n.Host == to || n.Site == to) && !slices.Contains(avoid, n.Host) {
			out = append(out, n.Host)
		}
	}
	switch {
	case len(out) > 0:
		return out, nil
	case to == info.Host || to == info.Site:
		return nil, wrong(migration.CodeUsage, "its guests are on %s already; name another site or host", to)
	case to != "":
		return nil, wrong(migration.CodeUsage, "site or host %s is not known there (known: %s)", to, strings.Join(known, ", "))
	}
	return nil, wrong(migration.CodeUnknownSite, "its agent knows no other host; name some under peers in its configuration")
}

// Ask asks each host about each guest, about width guests at once, and chooses. Nothing
// is changed by that, but no migration of a guest can begin while it is asked about. What
// of the guests could not be asked when ctx ended has that as its reason.
func Ask(ctx context.Context, planner Planner, guests []api.GuestInfo, hosts []string, like migration.Request, width int) []Move {
	a := &asker{planner: planner, hosts: hosts, like: like, silent: map[string]string{}}
	answers := make([]answered, len(guests))
	Each(ctx, width, len(guests), func(i int) { answers[i] = a.about(ctx, guests[i]) })
	var evacuees []policy.Evacuee
	for i, g := range guests {
		evacuees = append(evacuees, policy.Evacuee{Name: g.Name, Memory: g.Memory, Offers: answers[i].offers})
	}
	var moves []Move
	for _, chosen := range policy.Evacuate(evacuees) {
		m := Move{Guest: chosen.Guest}
		got := answers[slices.IndexFunc(guests, func(g api.GuestInfo) bool { return g.Name == chosen.Guest })]
		for _, o := range chosen.Offers {
			m.To = append(m.To, Destination{o.Host, got.predicted[o.Host]})
		}
		if len(m.To) == 0 {
			m.Why = got.why()
		}
		moves = append(moves, m)
	}
	return moves
}

// answered is what all hosts said of one guest.
type answered struct {
	offers    []policy.Offer
	predicted map[string]*record.Prediction
	refusals  []string
}

func (a answered) why() string {
	switch {
	case len(a.offers) > 0:
		var hosts []string
		for _, o := range a.offers {
			hosts = append(hosts, o.Host)
		}
		return fmt.Sprintf("no memory is left for it beside the other guests (%s); free some, or name another destination", strings.Join(hosts, ", "))
	case len(a.refusals) == 0:
		return "interrupted before anybody was asked about it"
	}
	return strings.Join(slices.Compact(a.refusals), "; ")
}

// asker remembers which hosts do not answer, and whether its own agent does: nobody waits for them twice.
type asker struct {
	planner Planner
	hosts   []string
	like    migration.Request

	mu     sync.Mutex
	silent map[string]string // by host: why
	nobody error             // the agent that is asked does not answer any more
}

// about asks the hosts about one guest, one after the other: a guest is planned for once at
// a time.
func (a *asker) about(ctx context.Context, g api.GuestInfo) answered {
	out := answered{predicted: map[string]*record.Prediction{}}
	for _, host := range a.hosts {
		a.mu.Lock()
		why, silent := a.silent[host]
		a.mu.Unlock()
		if silent {
			out.refusals = append(out.refusals, why)
			continue
		}
		req := a.like
		req.Guest, req.To = g.Name, host
		rep, err := a.plan(ctx, req)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			out.refusals = append(out.refusals, a.refused(host, err))
			continue
		}
		offer := policy.Offer{Host: host, Free: -1}
		if rep.Free != nil {
			offer.Free = max(*rep.Free, 0)
		}
		if p := rep.Predicted; p != nil {
			offer.Time = time.Duration(p.MigrationS * float64(time.Second))
			out.predicted[host] = p
		}
		out.offers = append(out.offers, offer)
	}
	return out
}

// plan asks for one plan. An agent that does not answer may be started again: it is asked on, and nothing of what it
// was asked about is concluded from that.
func (a *asker) plan(ctx context.Context, req migration.Request) (record.Report, error) {
	for left := (patience{}); ; {
		rep, err := a.planner.Plan(ctx, req)
		a.mu.Lock()
		switch {
		case !api.Unanswered(err):
			a.nobody = nil
		case a.nobody != nil || left.over():
			a.nobody = err
		}
		given := a.nobody
		a.mu.Unlock()
		if given != nil || !api.Unanswered(err) || !clock.Sleep(ctx, tryPause) {
			return rep, err
		}
	}
}

func (a *asker) refused(host string, err error) string {
	why := err.Error()
	var problem *migration.Problem
	if !api.Unanswered(err) && errors.As(err, &problem) && (problem.Code == migration.CodePeer || problem.Code == migration.CodePath) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.silent[host] = why
	}
	return why
}

// Each calls do with 0 … n-1, width of them at once, in order, and returns when all have
// returned. Once ctx has ended none is begun any more.
func Each(ctx context.Context, width, n int, do func(i int)) {
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, max(width, 1))
	for i := range n {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		if ctx.Err() != nil { // of two that are ready, either is taken
			return
		}
		wg.Go(func() {
			defer func() { <-slots }()
			do(i)
		})
	}
}
