package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"godwit/internal/clock"
	"godwit/internal/oneline"
	"godwit/lab/report"
	"godwit/lab/scenario"
	"godwit/lab/wan"
	"godwit/migration"
)

// schedule runs the steps at their times, and starts those that wait for a phase
// when it begins. It returns when all timed steps were begun.
func (r *run) schedule(ctx context.Context) {
	for i := range r.w.scenario.Steps {
		step := &r.w.scenario.Steps[i]
		if step.At.Triggered() {
			continue
		}
		if !r.due(ctx, time.Until(r.zero.Add(step.At.Time))) {
			return
		}
		r.do(ctx, step)
	}
}

// phaseBegan starts the steps that wait for this phase of this guest.
func (r *run) phaseBegan(ctx context.Context, m *move, phase migration.Phase, began time.Time) {
	r.markEdges(ctx, m, phase, began)
	if phase == migration.Settle {
		r.handedOver()
	}
	var waiting []int
	for i := range r.w.scenario.Steps {
		step := &r.w.scenario.Steps[i]
		if !step.At.Triggered() || step.At.Guest != m.guest || migration.Phase(step.At.Phase) != phase {
			continue
		}
		r.mu.Lock()
		if !r.reached[i] { // once, at the first migration that gets there
			waiting = append(waiting, i)
			r.by[step] = m
		}
		r.reached[i] = true
		r.mu.Unlock()
	}
	if len(waiting) == 0 {
		return
	}
	steps := r.w.scenario.Steps
	slices.SortStableFunc(waiting, func(a, b int) int { return cmp.Compare(steps[a].At.Plus, steps[b].At.Plus) })
	r.background(func() {
		for k, i := range waiting {
			if !r.due(ctx, time.Until(began.Add(steps[i].At.Plus))) {
				r.notReached(waiting[k:])
				return
			}
			r.do(ctx, &steps[i])
		}
	})
}

// notReached takes back that steps were begun: the run ended first, by its timeout or from outside.
func (r *run) notReached(steps []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, i := range steps {
		r.reached[i] = false
	}
}

// due waits until it is time for a step, and says whether the run has not come to its end
// before.
func (r *run) due(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
	case <-r.ending:
	case <-ctx.Done():
	}
	return !r.over() && ctx.Err() == nil
}

// over says whether the run has come to its end.
func (r *run) over() bool {
	select {
	case <-r.ending:
		return true
	default:
		return false
	}
}

// background does in the background what the run does not end without.
func (r *run) background(act func()) { r.backgroundAs(&r.acts, act) }

// backgroundAs counts an act that lasts among those of its kind.
func (r *run) backgroundAs(kind *int, act func()) {
	r.mu.Lock()
	*kind++
	r.mu.Unlock()
	r.wg.Go(func() {
		act()
		r.mu.Lock()
		defer r.mu.Unlock()
		*kind--
	})
}

// neverCame notes a step that waited for its turn when the run ended: nothing of it took place.
func (r *run) neverCame(step *scenario.Step) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.never[step] = true
}

// unreached lists the steps whose trigger never came, or whose turn.
func (r *run) unreached() []string {
	var out []string
	for i := range r.w.scenario.Steps {
		step := &r.w.scenario.Steps[i]
		if step.At.Triggered() && !r.reached[i] || r.never[step] {
			out = append(out, fmt.Sprintf("%s: %s", step.At, step))
		}
	}
	return out
}

// stepDone is a step that was begun, for the picture.
type stepDone struct {
	*report.StepDone
	step *scenario.Step
}

// do performs one step. What lasts is ended in the background; what goes wrong is
// trouble of the run.
func (r *run) do(ctx context.Context, step *scenario.Step) {
	done := &report.StepDone{AtS: time.Since(r.zero).Seconds(), Text: step.String()}
	r.tell("step: " + step.String())
	var err error
	switch {
	case step.Migrate != nil:
		r.queueMigrate(ctx, step)
	case step.Abort != nil:
		m := r.about(step, step.Abort.Guest)
		r.background(func() { r.trouble(step, r.abort(ctx, step.Abort.Guest, m)) })
	case step.MoveClient != nil:
		r.background(func() {
			r.trouble(step, r.w.topo.MoveClient(ctx, step.MoveClient.Client, step.MoveClient.To, step.MoveClient.Gap))
		})
	case step.Cut != nil:
		err = r.link(ctx, step.Cut.Site, step.Cut.Uplink, step.Cut.For, done, func(l *wan.Link) { l.Cut = "both" })
	case step.Degrade != nil:
		err = r.link(ctx, step.Degrade.Site, step.Degrade.Uplink, step.Degrade.For, done, degrade(step.Degrade))
	case step.Kill != nil:
		err = r.kill(ctx, step)
	case step.Exec != nil:
		r.backgroundAs(&r.commands, func() { r.trouble(step, r.execStep(ctx, step.Exec)) })
	case step.Evacuate != nil:
		r.evacuate(ctx, step)
	}
	r.trouble(step, err)
	r.mu.Lock()
	r.steps = append(r.steps, stepDone{done, step})
	r.mu.Unlock()
}

// oneLine has what programs said over several lines on one, fit to be shown: guests' commands are among them.
func oneLine(text string) string {
	return oneline.Of(strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }), "; "))
}

func (r *run) trouble(step *scenario.Step, err error) {
	if err == nil || errors.Is(err, context.Canceled) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.troubles = append(r.troubles, oneLine(fmt.Sprintf("%s: %v", step, err)))
}

// place is one in the queue of a guest's migrations: before is closed when all that were asked for before have their
// outcome, nil if there is none; done says that this one has its.
type place struct {
	before <-chan struct{}
	done   func()
}

// queued is the next place of a guest.
func (r *run) queued(guest string) (before <-chan struct{}, done func()) {
	p := r.queuedTogether(guest)[0]
	return p.before, p.done
}

// queuedTogether are the next places of guests that go together, all taken at once: of two who take the same guests'
// one comes first for each of them, or they would wait for each other.
func (r *run) queuedTogether(guests ...string) (places []place) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, guest := range guests {
		mine := make(chan struct{})
		places = append(places, place{r.underWay(guest), sync.OnceFunc(func() {
			r.mu.Lock()
			r.pending--
			r.lastEnd = time.Now()
			r.mu.Unlock()
			close(mine)
		})})
		r.queue[guest] = mine
		r.pending++
	}
	return places
}

// comes waits for a turn, and says whether the run has not come to its end before.
func (r *run) comes(ctx context.Context, before <-chan struct{}) bool {
	if before != nil {
		select {
		case <-before:
		case <-r.ending:
		case <-ctx.Done():
		}
	}
	return r.due(ctx, 0)
}

// canMove waits for a guest's turn, and until it has booted again where its QEMU was killed and it is to, or until that
// came to nothing; it says whether the run has not come to its end before.
func (r *run) canMove(ctx context.Context, guest string, before <-chan struct{}) bool {
	ok := r.comes(ctx, before)
	for ok && r.isToBoot(ctx, guest) {
		ok = r.due(ctx, 100*time.Millisecond)
	}
	return ok
}

// queueMigrate begins a migration, after the one of the same guest that is under way, and once the guest has booted
// again where it is to. Those that need not wait are in the report in the order in which they were due.
func (r *run) queueMigrate(ctx context.Context, step *scenario.Step) {
	before, done := r.queued(step.Migrate.Guest)
	var m *move
	if before == nil && !r.isToBoot(ctx, step.Migrate.Guest) {
		m = r.newMove(step.Migrate)
	}
	r.wg.Go(func() {
		defer done()
		if m == nil && !r.canMove(ctx, step.Migrate.Guest, before) || !r.due(ctx, 0) {
			r.neverCame(step)
			if m != nil {
				r.takeBack(m)
			}
			return
		}
		if m == nil {
			m = r.newMove(step.Migrate)
		}
		r.migrate(ctx, m)
	})
}

// migrate asks for a migration and returns when it has its outcome, or ctx ends.
func (r *run) migrate(ctx context.Context, m *move) {
	r.request(ctx, m)
	select {
	case <-m.done:
	case <-ctx.Done():
	}
}

// lastOf is closed when the guest's last requested migration has its outcome.
func (r *run) lastOf(name string) chan struct{} { return r.queue[name] }

// await is the guest's migration that is under way, as soon as there is one; nil where none is asked for any more, or
// the run has come to its end.
func (r *run) await(ctx context.Context, name string) *move {
	for {
		if m := r.current(name); m != nil || !r.asks(name) || !r.due(ctx, 10*time.Millisecond) {
			return m
		}
	}
}

// asks says whether a migration of the guest has been asked for that has no outcome.
func (r *run) asks(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.underWay(name) != nil
}

// underWay is lastOf where that has no outcome yet, else nil; under mu.
func (r *run) underWay(name string) <-chan struct{} {
	last := r.lastOf(name)
	select {
	case <-last:
		return nil
	default:
		return last
	}
}

// about is the migration of a guest that a step is about: that whose phase it waited for, also when
// it is over by then; else the one under way, nil if there is none.
func (r *run) about(step *scenario.Step, name string) *move {
	r.mu.Lock()
	m := r.by[step]
	r.mu.Unlock()
	if m != nil && m.guest == name {
		return m
	}
	return r.current(name)
}

// current is the guest's migration that is under way.
func (r *run) current(name string) *move {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.moves {
		if m.guest == name && !m.ended() {
			return m
		}
	}
	return nil
}

// link changes an uplink, and after lasting takes the change back.
func (r *run) link(ctx context.Context, site, uplink string, lasting time.Duration, done *report.StepDone, change func(*wan.Link)) error {
	undo, err := r.faults.add(r.w.spec().Sites, r.w.topo, site, uplink, change)
	if err != nil || lasting == 0 {
		return err
	}
	end := done.AtS + lasting.Seconds()
	done.EndS = &end
	c := linkChange{time.Now().Add(lasting), lasting, make(chan struct{})}
	r.mu.Lock()
	r.changes = append(r.changes, c)
	r.mu.Unlock()
	r.restoring.Add(1)
	r.wg.Go(func() {
		defer close(c.undone)
		defer r.restoring.Add(-1)
		if !clock.Sleep(ctx, lasting) {
			return
		}
		if err := undo(); err != nil {
			r.tell("restore " + site + "/" + uplink + ": " + err.Error())
		}
	})
	return nil
}

func degrade(d *scenario.Degrade) func(*wan.Link) {
	return func(l *wan.Link) {
		if d.Rate != nil {
			l.Rate = *d.Rate
		}
		if d.Delay != nil {
			l.Delay = *d.Delay
			l.Jitter = min(l.Jitter, l.Delay) // a link's delay is never below zero
		}
		if d.Loss != nil {
			l.Loss = *d.Loss
		}
	}
}
