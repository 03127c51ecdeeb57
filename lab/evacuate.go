package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"godwit/agent/api"
	"godwit/agent/evacuate"
	"godwit/lab/scenario"
	"godwit/migration"
	"godwit/policy"
)

// evacuate moves every guest that is on the host, or the site's hosts, when the step is
// due, each after its migrations that were asked for before; chosen as `godwit evacuate`
// chooses, and as many at once. Those that are to boot again go after the others, which do not wait for that.
func (r *run) evacuate(ctx context.Context, step *scenario.Step) {
	names := r.w.scenario.Hosts(step.Evacuate.Host)
	nobody := true
	for _, host := range names {
		var turns []evacuee
		var guests []string
		for _, g := range r.w.scenario.Guests {
			if a := r.w.agentOf(g.Name); a != nil && a.host.Name == host {
				turns, guests = append(turns, evacuee{Guest: g}), append(guests, g.Name)
			}
		}
		var first, last []evacuee
		for i, p := range r.queuedTogether(guests...) {
			if turns[i].place = p; r.isToBoot(ctx, guests[i]) {
				last = append(last, turns[i])
			} else {
				first = append(first, turns[i])
			}
		}
		if len(turns) > 0 {
			nobody = false
			r.wg.Go(func() {
				for _, those := range [][]evacuee{first, last} {
					r.trouble(step, r.evacuateHost(ctx, host, step.Evacuate.To, names, those))
				}
			})
		}
	}
	if nobody {
		r.tell(step.String() + ": no guest is there; one that is on its way there does not count")
	}
}

// evacuee is a guest that leaves with others, and its turn.
type evacuee struct {
	scenario.Guest
	place
}

// evacuateHost moves the guests of a host to where to leads but for the hosts avoid, of which it is one, also those
// that go to another of these before it is their turn.
func (r *run) evacuateHost(ctx context.Context, host, to string, avoid []string, turns []evacuee) error {
	waiting := map[string][]api.GuestInfo{} // by where they are
	byName := map[string]evacuee{}
	for _, t := range turns {
		defer t.done()
		if !r.canMove(ctx, t.Name, t.before) {
			return fmt.Errorf("the run ended before guest %s could leave %s", t.Name, host)
		}
		here := r.w.agentOf(t.Name).host.Name
		if !slices.Contains(avoid, here) { // it has left
			t.done()
			continue
		}
		byName[t.Name] = t
		waiting[here] = append(waiting[here], api.GuestInfo{Name: t.Name, Memory: t.Memory})
	}
	errs := make([]error, len(avoid))
	var all sync.WaitGroup
	for i, here := range avoid {
		if guests := waiting[here]; len(guests) > 0 {
			all.Go(func() { // none waits for another host's agent
				moves, err := r.chooseMoves(ctx, r.w.agents[here], guests, to, avoid)
				if err != nil {
					errs[i] = fmt.Errorf("guests on %s stay: %w", here, err)
					return
				}
				errs[i] = r.moveChosen(ctx, here, moves, byName)
			})
		}
	}
	all.Wait()
	return errors.Join(errs...)
}

// moveChosen moves guests that are on one host.
func (r *run) moveChosen(ctx context.Context, here string, moves []evacuate.Move, byName map[string]evacuee) error {
	moved := make([]bool, len(moves))
	evacuate.Each(ctx, policy.EvacuateWidth, len(moves), func(i int) {
		t := byName[moves[i].Guest]
		defer t.done()
		if !r.canMove(ctx, t.Name, nil) { // its QEMU may have been killed since
			return
		}
		moved[i] = true
		r.migrate(ctx, r.newMove(&scenario.Migrate{
			Guest: t.Name, To: moves[i].To[0].Host, Mode: "auto", Transfer: "auto", Network: t.Network, Downtime: migration.DefaultDowntime,
		}))
	})
	for i, m := range moves {
		if !moved[i] {
			return fmt.Errorf("the run ended before guest %s could leave %s", m.Guest, here)
		}
	}
	return nil
}

// chooseMoves asks, for guests that are on one host, where there is a choice. What nothing takes goes to the first host
// all the same, whose refusal is its migration's outcome.
func (r *run) chooseMoves(ctx context.Context, host *hostAgent, guests []api.GuestInfo, to string, avoid []string) ([]evacuate.Move, error) {
	var info api.HostInfo
	err := r.onceThere(ctx, host, func() (err error) {
		info, err = host.client.Host(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	hosts, err := evacuate.Destinations(info, to, avoid)
	if err != nil {
		return nil, err
	}
	first := []evacuate.Destination{{Host: hosts[0]}}
	var moves []evacuate.Move
	if len(hosts) > 1 {
		moves = evacuate.Ask(ctx, host.client, guests, hosts, migration.Request{Downtime: migration.DefaultDowntime}, policy.EvacuateWidth)
	} else {
		for _, g := range guests {
			moves = append(moves, evacuate.Move{Guest: g.Name})
		}
	}
	for i := range moves {
		if len(moves[i].To) == 0 {
			moves[i].To = first
		}
	}
	return moves, nil
}
