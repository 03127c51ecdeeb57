package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"godwit/lab/report"
	"godwit/lab/scenario"
	"godwit/lab/traffic"
	"godwit/migration"
)

// Options of a run.
type Options struct {
	Out  string       // directory of report.json, report.html and logs; "" keeps none
	Tell func(string) // hears a line for each thing that happens; may be nil
	Live func(Status) // hears the state of things some times a second; may be nil
	Log  *slog.Logger // nil: none

	// Plain has the lab move guests itself, by QEMU's own post-copy and without agents, one
	// move of a run with one guest: what benches hold ours against. Clients lose the guest.
	Plain bool

	Costs bool // the report has cpu_s, least_bytes and slowdown too, which takes some seconds more
}

// run is one scenario under way.
type run struct {
	w      *world
	opts   Options
	zero   time.Time // time 0
	faults linkFaults
	cpu    processors
	wg     sync.WaitGroup
	starts sync.WaitGroup // of flows that begin after time 0
	ending chan struct{}  // closed when the end of the run begins: no step does any more
	ended  time.Time      // when that was

	patience time.Duration // flowPatience, or a test's
	settling time.Duration // ownerlessTime, or a test's

	restoring atomic.Int32 // links that change back by themselves

	mu       sync.Mutex
	moves    []*move
	queue    map[string]chan struct{} // by guest: its last requested migration
	pending  int                      // requested migrations without an outcome
	acts     int                      // other acts that the run does not end without
	commands int                      // of exec steps, which it awaits for a while
	changes  []linkChange             // of links that are to be as they were; it awaits those that soon are
	lastEnd  time.Time                // of migrations; or when a flow began, where that was later
	execs    int                      // commands of steps so far
	reached  map[int]bool             // steps whose trigger came
	by       map[*scenario.Step]*move // of those: whose phase that was
	steps    []stepDone
	never    map[*scenario.Step]bool // steps that were due, and for which the run ended first
	troubles []string
	results  map[string]traffic.Result
	flows    map[string]*flowTrace
	balances []balance
	loads    map[string][]loadLook // by guest; with Options.Costs
	handed   chan struct{}         // a handover is done: edges and guests are to be compared before another move begins
	links    linkWindow            // while traffic ran
	held     holdings
	known    map[string][]migration.Address // by guest: its addresses as its agent told them last
	booting  map[string][]*hostAgent        // by guest: where it is to boot again after a QEMU of it was killed
	boots    map[string]int                 // how often a guest's own counters began anew
	programs map[string]uint64              // which start of a guest's program its counters were of last
	tunnels  map[string]map[tunnelEnds]bool // by guest: all that led to or from it
}

// ErrUnusable marks a run that could not be carried out as the file asks: the
// machine or the scenario is at fault, not the guest's migration.
var ErrUnusable = errors.New("the scenario cannot be run here")

// Run carries a scenario out and judges it. Whatever happens, also when ctx ends,
// everything it made is taken down again; the report says what was left. The
// error is for runs that did not get to time 0, which have no report, and for a report
// that could not be kept.
func Run(ctx context.Context, s *scenario.Scenario, opts Options) (*report.Report, error) {
	if opts.Out != "" {
		if err := clearOut(opts.Out); err != nil {
			return nil, fmt.Errorf("%w: output directory: %w", ErrUnusable, err)
		}
	}
	r, stopReaper, err := setUp(ctx, s, opts)
	if err != nil {
		return nil, err
	}
	timedOut := r.carryOut(ctx)
	rep := r.assemble(ctx, timedOut)
	rep.Leftovers = r.takeDown(context.WithoutCancel(ctx), stopReaper)
	rep.Unmet = report.Check(s, rep)
	if ctx.Err() != nil {
		rep.Unmet = append(rep.Unmet, "the run was interrupted")
	}
	rep.OK = len(rep.Unmet) == 0
	return rep, r.write(rep)
}

// setUp builds the world of a scenario and gets it to time 0. On error everything is taken
// down again; else the caller closes the world.
func setUp(ctx context.Context, s *scenario.Scenario, opts Options) (*run, func(), error) {
	if opts.Log == nil {
		opts.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if opts.Tell == nil {
		opts.Tell = func(string) {}
	}
	id, dir, err := claim(newID)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	w := &world{
		id: id, dir: dir, out: opts.Out, scenario: s, log: opts.Log,
		agents: map[string]*hostAgent{}, where: map[string]string{},
		clients: map[string]*traffic.Client{}, probers: map[string]*traffic.Prober{},
	}
	stopReaper, err := guard(id, dir)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrUnusable, errors.Join(err, os.Remove(dir)))
	}
	r := &run{
		w: w, opts: opts, queue: map[string]chan struct{}{}, reached: map[int]bool{}, by: map[*scenario.Step]*move{}, never: map[*scenario.Step]bool{},
		results: map[string]traffic.Result{}, flows: map[string]*flowTrace{}, loads: map[string][]loadLook{},
		ending: make(chan struct{}), patience: flowPatience, settling: ownerlessTime, handed: make(chan struct{}, 1),
	}
	// What is begun here lives to the end of the run: one that is interrupted is measured, too.
	var life context.Context
	life, w.leave = context.WithCancel(context.WithoutCancel(ctx))
	interrupted := context.AfterFunc(ctx, w.leave)
	err = r.prepare(life)
	if !interrupted() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		left := w.close(stopReaper)
		if ctx.Err() != nil {
			return nil, nil, fmt.Errorf("interrupted before all was built%s", leftWords(left))
		}
		return nil, nil, fmt.Errorf("%w: %w%s", ErrUnusable, err, leftWords(left))
	}
	return r, stopReaper, nil
}

func leftWords(left []string) string {
	if len(left) == 0 {
		return ""
	}
	return fmt.Sprintf(" (left behind: %v)", left)
}

func (r *run) tell(line string) { r.opts.Tell(line) }

// prepare gets everything to time 0: built, booted, filled, connected.
func (r *run) prepare(ctx context.Context) error {
	w := r.w
	if err := w.build(ctx, r.tell); err != nil {
		return err
	}
	var err error
	if w.edges, err = openEdges(w.topo, guestsOf(w.scenario)); err != nil {
		r.tell(err.Error())
		w.edges = nil
	}
	if err := r.startProbers(ctx); err != nil {
		return err
	}
	r.watchSamples()
	r.takeBalance(ctx, func(string) bool { return false }) // what guests sent before there were edges is no migration's
	r.tell("starting traffic")
	r.links = r.linkDrops()
	for _, t := range w.scenario.Traffic {
		if t.Start > 0 {
			continue
		}
		if err := r.startFirst(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// carryOut runs the steps from time 0 to the end; timedOut says that the run met
// its limit.
func (r *run) carryOut(ctx context.Context) (timedOut bool) {
	life, cancel := context.WithCancel(context.WithoutCancel(ctx)) // of what is under way, which the end calls off in its own way
	defer cancel()
	r.zero = time.Now()
	r.tell("time 0")
	limit := time.NewTimer(r.w.scenario.End.Timeout)
	defer limit.Stop()
	r.startLater(life)
	r.wg.Go(func() { r.balance(life) })
	if r.opts.Costs {
		r.wg.Go(func() { r.cpu.follow(life, r.w.namespaces()) })
	}
	if r.opts.Live != nil {
		r.wg.Go(func() { r.live(life) })
	}
	scheduled := make(chan struct{})
	r.wg.Go(func() {
		r.schedule(life)
		close(scheduled)
	})
	timedOut = r.awaitEnd(ctx, scheduled, limit.C)
	r.ended = time.Now()
	close(r.ending)
	r.callOff()
	r.starts.Wait() // they are called off, too
	r.stopTraffic()
	cancel()
	r.endLeases()
	r.wg.Wait()
	return timedOut
}

// commandsAwaited is how much longer a run lasts for commands of exec steps that have not ended, when all else is over.
const commandsAwaited = 30 * time.Second

// awaitEnd waits until all steps and flows were begun, steps that wait for a time after a
// phase too, all migrations have their outcome, and some time has passed after the last; then for links.
func (r *run) awaitEnd(ctx context.Context, scheduled <-chan struct{}, limit <-chan time.Time) bool {
	select {
	case <-scheduled:
	case <-limit:
		return true
	case <-ctx.Done():
		return false
	}
	seen := time.Now() // that something else was under way
	for {
		r.mu.Lock()
		pending, last, commands := r.pending+r.acts, r.lastEnd, r.commands
		r.mu.Unlock()
		if last.IsZero() {
			last = r.zero
		}
		wait := 20 * time.Millisecond
		switch over := time.Until(last.Add(r.w.scenario.End.AfterLastMigration)); {
		case pending > 0:
			seen = time.Now()
		case over > 0:
			seen, wait = time.Now(), over
		case commands == 0 || time.Since(seen) >= commandsAwaited:
			r.awaitLinks(ctx)
			return false
		}
		select {
		case <-time.After(min(wait, 100*time.Millisecond)):
		case <-limit:
			return true
		case <-ctx.Done():
			return false
		}
	}
}

// startProbers starts one a guest: from its first client, else from the internet.
func (r *run) startProbers(ctx context.Context) error {
	for _, g := range r.w.scenario.Guests {
		namespace := r.w.topo.Core()
		for _, t := range r.w.scenario.Traffic {
			if t.Guest == g.Name {
				namespace = r.w.topo.Client(t.Client).Namespace
				break
			}
		}
		p, err := traffic.StartProber(ctx, namespace, 10*time.Millisecond)
		if err != nil {
			return fmt.Errorf("prober of %s: %w", g.Name, err)
		}
		r.w.probers[g.Name] = p
	}
	return nil
}

// probe changes what a guest's prober asks.
func (r *run) probe(name string, addrs []netip.Addr) {
	if p := r.w.probers[name]; p != nil {
		if err := p.SetTargets(addrs); err != nil {
			r.tell("prober: " + err.Error())
		}
	}
}

// beforeMove begins to probe where the guest is now.
func (r *run) beforeMove(m *move) {
	m.links = r.linkDrops()
	m.cpu = -r.cpu.sum()
	info, err := r.guestInfo(context.Background(), m.guest)
	if err != nil {
		return
	}
	r.probe(m.guest, targets(goesBy(info.Addresses)))
}

// finishMove notes what ended with the migration.
func (r *run) finishMove(m *move) {
	m.over = r.overAt(m)
	m.mu.Lock()
	rep, open, refused := m.told(), m.open() && m.refusal == nil, m.refused()
	m.mu.Unlock()
	if p := r.w.probers[m.guest]; p != nil {
		if rep != nil && changesAddress(rep) { // nobody may have heard that the handover was done
			r.probe(m.guest, targets(rep.Next))
		}
		p.Rest(m.over.UnixNano())
	}
	switch {
	case open, rep != nil && rep.Outcome == migration.Failed:
		r.w.keepsDisks(m.guest, m.from, r.resolve(m))
	case refused: // what was before is so still
	default:
		r.w.keepsDisks(m.guest)
	}
	switch {
	case rep == nil:
	case rep.Outcome == migration.Completed:
		r.w.moved(m.guest, rep.To)
	default:
		r.mu.Lock()
		r.held.notGot(addressesOf(rep.Next))
		r.mu.Unlock()
	}
	m.links = r.linkDrops().minus(m.links)
	m.cpu += r.cpu.sum()
	r.keepLeft(m)
	r.checkMove(m)
	r.lookAfter(m)
	close(m.done)
}

// overAt is when a migration that is followed no more was over: now, or, where nobody told its end,
// when the run began to end, as traffic is not judged after that.
func (r *run) overAt(m *move) time.Time {
	select {
	case <-r.ending:
		if rep := m.told(); m.refusal == nil && (rep == nil || rep.Ended == 0) {
			return r.ended
		}
	default:
	}
	return time.Now()
}

// linkWindow counts what links dropped because a queue was full, and what their devices
// did: that is a fault of the lab.
type linkWindow struct{ drops, faults int64 }

func (l linkWindow) minus(o linkWindow) linkWindow {
	return linkWindow{l.drops - o.drops, l.faults - o.faults}
}

func (r *run) linkDrops() linkWindow {
	var out linkWindow
	for _, c := range r.w.topo.LinkCounters() {
		out.drops += int64(c.AB.QueueDrop + c.BA.QueueDrop)
		out.faults += int64(c.AB.DeviceDrop + c.BA.DeviceDrop)
	}
	return out
}

// write keeps the report in OUT.
func (r *run) write(rep *report.Report) error {
	if r.opts.Out == "" {
		return nil
	}
	return errors.Join(
		keep(filepath.Join(r.opts.Out, jsonFile), rep.Write),
		keep(filepath.Join(r.opts.Out, htmlFile), func(w io.Writer) error { return report.HTML(w, rep) }),
	)
}
