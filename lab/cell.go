package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"godwit/agent/journal"
	"godwit/agent/record"
	"godwit/internal/clock"
	"godwit/lab/matrix"
	"godwit/migration"
	"godwit/vm/guest"
)

// Limits of a cell's parts.
const (
	reachLimit   = 60 * time.Second // until the phase begins
	outcomeLimit = 2 * time.Minute  // from the fault to the outcome
	cleanLimit   = 25 * time.Second // from the last connection's end until nothing is left
)

// cellBudget is generous: what is tried here is not how short a pause is.
const cellBudget = 2 * time.Second

// cellRun is one cell under way.
type cellRun struct {
	*cellWorld
	cell     matrix.Cell
	random   *rand.Rand
	seen     *matrix.Seen
	from, to *hostAgent
	id       string
	look     *watcher
	wg       sync.WaitGroup

	mu      sync.Mutex
	zero    time.Time       // when the fault had come
	through time.Time       // when something could get through again
	undo    []func() error  // when the fault's time is up
	atEnd   []func() error  // when the cell has been measured
	phases  []phaseAt       // that began, by the source's events
	ends    bool            // the fault ends the guest's only QEMU
	planned map[string]bool // hosts whose agent the fault ends
	settles int64           // unix ns, when the migration settled, or else was over
	missing *int64          // pages that had to follow the guest, as last told; nil: nothing was told of them
	notes   []string
}

type phaseAt struct {
	phase migration.Phase
	at    time.Time
}

// try carries one cell out. The world is usable afterwards if nothing is bad.
func (w *cellWorld) try(ctx context.Context, cell matrix.Cell, random *rand.Rand) matrix.Seen {
	c := &cellRun{cellWorld: w, cell: cell, random: random, seen: &matrix.Seen{}, planned: map[string]bool{}}
	if err := c.carryOut(ctx); err != nil {
		c.seen.Trouble = err.Error()
	}
	return *c.seen
}

func (c *cellRun) carryOut(ctx context.Context) error {
	host, err := c.ready(ctx)
	if err != nil {
		return fmt.Errorf("guest: %w", err)
	}
	c.from = c.agents[host]
	for name, a := range c.agents {
		if name != host {
			c.to = a
		}
	}
	c.seen.From, c.seen.To = host, c.to.host.Name
	if err := c.startFlows(ctx); err != nil {
		return err
	}
	c.look = &watcher{w: c.cellWorld, ranAt: map[string]bool{}, watching: c}
	looking, stop := context.WithCancel(ctx)
	defer func() { stop(); c.wg.Wait() }()
	for _, a := range c.agents {
		c.wg.Go(func() { c.keepAlive(looking, a) })
	}
	mended := make(chan error, 1)
	if err = c.migrateAndBreak(looking); err == nil {
		go func() {
			clock.Sleep(looking, c.cell.Kind().Lasts)
			mended <- c.mend()
		}()
		err = c.awaitOutcome(ctx)
		err = errors.Join(err, <-mended)
		c.conclude(ctx)
	} else {
		err = errors.Join(err, c.mend())
	}
	stop()
	c.wg.Wait()
	err = errors.Join(err, ctx.Err())
	if c.look.looks > 0 {
		c.look.fill(c.seen, c.zero)
	}
	if len(c.seen.Runs) == 1 {
		clock.Sleep(ctx, c.cell.Kind().Lingers)
		c.awaitFlows(ctx)
	}
	err = errors.Join(err, c.stopFlows())
	if err == nil {
		c.findLeft(ctx)
	}
	for _, f := range c.atEnd {
		err = errors.Join(err, f())
	}
	return err
}

// migrateAndBreak asks for the migration, and makes the fault when the phase is there.
// How the fault is mended is in c.undo then.
func (c *cellRun) migrateAndBreak(ctx context.Context) error {
	req := migration.Request{Guest: cellGuest, To: c.to.host.Name, Downtime: cellBudget, Mode: c.mode}
	if c.mode == "postcopy" {
		req.Bandwidth = cellLate
	}
	id, err := c.from.client.Migrate(ctx, req)
	if err != nil {
		return fmt.Errorf("request: %w", err)
	}
	c.id = id
	c.wg.Go(func() { c.look.run(ctx) })
	began := make(chan struct{})
	c.wg.Go(func() { c.follow(ctx, began) })
	select {
	case <-began:
	case <-time.After(reachLimit):
		return fmt.Errorf("phase %s did not begin in %v", c.cell.Phase, reachLimit)
	case <-ctx.Done():
		return ctx.Err()
	}
	if most := laterBy[c.cell.Phase]; most > 0 {
		clock.Sleep(ctx, time.Duration(c.random.Int64N(int64(most))))
	}
	c.noteMissing()
	err = c.inject(ctx)
	c.mu.Lock()
	c.zero = time.Now()
	c.mu.Unlock()
	if err != nil {
		return fmt.Errorf("make the fault: %w", err)
	}
	c.wg.Go(func() { c.holdMissing(ctx, cellLate) })
	return nil
}

// follow reads the source's events; began is closed when the cell's phase begins, or
// the migration is over.
func (c *cellRun) follow(ctx context.Context, began chan struct{}) {
	var once sync.Once
	after := 0
	for ctx.Err() == nil {
		part, err := c.from.client.Events(ctx, c.id, after)
		if err != nil {
			return // its agent was killed: what phases it had told is enough
		}
		for _, e := range part.Events {
			after = e.N
			c.hearMissing(e)
			if e.Kind != "phase" {
				continue
			}
			c.mu.Lock()
			c.phases = append(c.phases, phaseAt{e.Phase, time.Unix(0, e.At)})
			c.mu.Unlock()
			if e.Phase == migration.Handover {
				c.holdMissing(ctx, cellHeld)
			}
			if e.Phase == c.cell.Phase {
				once.Do(func() { close(began) })
			}
		}
		if part.Over {
			c.mu.Lock()
			c.phases = append(c.phases, phaseAt{"", time.Now()})
			c.mu.Unlock()
			once.Do(func() { close(began) })
			return
		}
	}
}

// keepAlive starts an agent again when it has died, as a service manager does.
func (c *cellRun) keepAlive(ctx context.Context, a *hostAgent) {
	for clock.Sleep(ctx, 20*time.Millisecond) {
		if a.runsAgent() {
			continue
		}
		c.mu.Lock()
		if !c.planned[a.host.Name] && len(c.seen.Crashed) < 3 { // more tell nothing more
			c.seen.Crashed = append(c.seen.Crashed, a.host.Name+": "+lastLine(a.logPath()))
		}
		c.mu.Unlock()
		if !clock.Sleep(ctx, c.cell.Kind().Away()) {
			return
		}
		if err := a.start(ctx); err != nil {
			c.log.Warn("start agent again", "host", a.host.Name, "error", err)
			continue
		}
		c.mu.Lock()
		c.through = time.Now()
		c.planned[a.host.Name] = c.cell.Fault == matrix.OutOfMemory // it may meet it again
		c.mu.Unlock()
	}
}

func (c *cellRun) note(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notes = append(c.notes, fmt.Sprintf(format, args...))
}

// awaitOutcome waits until the outcome is known and both hosts are done.
func (c *cellRun) awaitOutcome(ctx context.Context) error {
	limit := time.Now().Add(outcomeLimit)
	for c.seen.OutcomeS == 0 || c.seen.SettledS == 0 {
		if time.Now().After(limit) {
			break
		}
		if !clock.Sleep(ctx, 20*time.Millisecond) {
			return ctx.Err()
		}
		if c.seen.OutcomeS == 0 {
			c.decide(ctx)
			c.askOutcome(ctx)
		}
		if c.seen.SettledS == 0 && c.seen.OutcomeS != 0 && !c.underWay() {
			c.seen.SettledS = c.since(time.Now())
		}
	}
	if c.seen.OutcomeS == 0 {
		c.seen.Outcome = matrix.NotEnded
		if rep, err := c.from.client.Report(ctx, c.id); err == nil && len(rep.Phases) > 0 {
			c.seen.Problem = fmt.Sprintf("no outcome in %v, in %s", outcomeLimit, rep.Phases[len(rep.Phases)-1].Name)
		}
	}
	return nil
}

// askOutcome notes the outcome, if it is known.
func (c *cellRun) askOutcome(ctx context.Context) {
	rep, known, err := c.outcome(ctx)
	if err != nil {
		return
	}
	c.seen.OutcomeS = c.since(time.Now())
	if known {
		c.told(rep)
	}
}

// outcome is the migration's report when it has ended; an error while it has not.
// known is false when the agent knows nothing of it, nor does its history.
func (c *cellRun) outcome(ctx context.Context) (rep record.Report, known bool, err error) {
	ask, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	rep, err = c.from.client.Report(ask, c.id)
	if err == nil && rep.Ended != 0 {
		return rep, true, nil
	}
	var problem *migration.Problem
	if err == nil || !errors.As(err, &problem) || problem.Code != migration.CodeUsage {
		return rep, false, errors.New("not yet")
	}
	data, err := os.ReadFile(filepath.Join(c.from.config.State, "history", c.id+".json"))
	if err == nil && json.Unmarshal(data, &rep) == nil && rep.Ended != 0 {
		return rep, true, nil
	}
	return rep, false, nil
}

// told takes the final report in.
func (c *cellRun) told(rep record.Report) {
	c.seen.Outcome = rep.Outcome
	if rep.Problem != nil {
		c.seen.Problem = rep.Problem.Text
	}
	c.seen.Notes, c.settles = rep.Notes, rep.Ended
	c.seen.TookS = map[migration.Phase]float64{}
	for _, p := range rep.Phases {
		if p.Name == migration.Settle {
			c.settles = p.Start
		}
		c.seen.TookS[p.Name] += float64(p.End-p.Start) / 1e9
	}
}

// underWay says whether a journal of a migration is left on either host.
func (c *cellRun) underWay() bool {
	for _, a := range c.agents {
		if ids, err := journal.Unfinished(filepath.Join(a.config.State, "journal")); err != nil || len(ids) > 0 {
			return true
		}
	}
	return false
}

func (c *cellRun) since(t time.Time) float64 { return t.Sub(c.zero).Seconds() }

// conclude looks where the guest runs, once the fault is over, fills in what follows
// from that, and asks the guest whether it lives and is whole.
func (c *cellRun) conclude(ctx context.Context) {
	c.seen.Runs = c.runs(ctx)
	for limit := time.Now().Add(endLimit); c.ends && len(c.seen.Runs) > 0 && time.Now().Before(limit); c.seen.Runs = c.runs(ctx) {
		clock.Sleep(ctx, 50*time.Millisecond) // it was told to end, and is at it
	}
	c.mu.Lock()
	for _, p := range c.phases {
		if !p.at.After(c.zero) {
			c.seen.Hit = p.phase
		}
	}
	if !c.through.IsZero() {
		c.seen.ThroughS = c.through.Sub(c.zero).Seconds()
	}
	c.seen.Ended, c.seen.Before = c.ends, c.look.goneBefore(c.settles)
	for _, n := range c.notes {
		if c.seen.Note != "" {
			c.seen.Note += "; "
		}
		c.seen.Note += n
	}
	c.mu.Unlock()
	if len(c.seen.Runs) != 1 {
		c.ended = true
		return
	}
	c.ended = false
	c.moved(cellGuest, c.seen.Runs[0])
	ask, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var info guest.Info
	for {
		err := c.agents[c.seen.Runs[0]].client.CallGuest(ask, cellGuest, "info", struct{}{}, &info)
		if err == nil {
			break
		}
		if !clock.Sleep(ask, 200*time.Millisecond) {
			c.seen.Silent = err.Error()
			return
		}
	}
	var v guest.Verified
	if err := c.agents[c.seen.Runs[0]].client.CallGuest(ask, cellGuest, "verify", struct{}{}, &v); err != nil {
		c.seen.Damaged = err.Error()
	} else if v.Corrupt != 0 || len(v.Errors) > 0 {
		c.seen.Damaged = fmt.Sprintf("%d of %d pages (%s), %v", v.Corrupt, v.Pages, v.First, v.Errors)
	}
}

// findLeft ends what leases may keep, and names what is there all the same.
func (c *cellRun) findLeft(ctx context.Context) {
	limit := time.Now().Add(cleanLimit)
	for {
		for _, a := range c.agents {
			if err := a.client.EndDetours(ctx); err != nil {
				c.log.Warn("end leases", "host", a.host.Name, "error", err)
			}
		}
		c.seen.Left = c.left(ctx)
		if len(c.seen.Left) == 0 || time.Now().After(limit) || !clock.Sleep(ctx, 200*time.Millisecond) {
			return
		}
	}
}
