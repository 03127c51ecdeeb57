package agent

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"godwit/agent/metrics"
	"godwit/agent/sample"
	"godwit/migration"
)

// Event is one line of a migration's story. Kind says which fields are set.
type Event struct {
	N     int                 `json:"n"`  // counts from 1 within the migration
	At    int64               `json:"at"` // unix ns, by the clock of Host
	Host  string              `json:"host"`
	Kind  string              `json:"kind"` // phase, event, progress, step, connection, note, outcome
	Phase migration.Phase     `json:"phase,omitempty"`
	Name  migration.EventName `json:"name,omitempty"`
	Text  string              `json:"text,omitempty"`
	Data  json.RawMessage     `json:"data,omitempty"`
}

// PhaseSpan is when a phase was under way, unix ns; End is 0 while it is.
type PhaseSpan struct {
	Name  migration.Phase `json:"name"`
	Start int64           `json:"start"`
	End   int64           `json:"end"`
}

// Steps by which more than a reader goes.
const (
	stepStop   = "stop guest"
	stepDisks  = "disks in sync"
	stepLoaded = "last byte loaded"
	stepStart  = "start guest"
)

// Step is one timed act on the critical path.
type Step struct {
	Name string  `json:"name"`
	At   int64   `json:"at"` // unix ns of its beginning
	MS   float64 `json:"ms"`
}

// Survey counts the guest's connections at the handover, as the guest sees them.
type Survey struct {
	Total     int      `json:"total"`
	Moved     int      `json:"moved"`
	Tunnelled int      `json:"tunnelled"`
	Unable    []string `json:"unable,omitempty"` // a line each: which, why
}

// Report is what the agents know of a migration. Times are unix ns, durations
// milliseconds; null means not measured (yet).
type Report struct {
	ID             string              `json:"id"`
	Guest          string              `json:"guest"`
	Epoch          uint64              `json:"epoch"` // of the right that it hands over, or that was taken back
	From           string              `json:"from"`
	To             string              `json:"to"`
	Mode           string              `json:"mode"`
	Transfer       string              `json:"transfer"`
	Network        string              `json:"network"`
	Outcome        migration.Outcome   `json:"outcome"`
	Problem        *migration.Problem  `json:"problem,omitempty"`
	Requested      int64               `json:"requested"`
	Phases         []PhaseSpan         `json:"phases"`
	Paused         int64               `json:"paused"`  // the source's guest stopped
	Resumed        int64               `json:"resumed"` // the destination's guest runs
	MemoryDone     int64               `json:"memory_done"`
	Handed         int64               `json:"handed"` // handover done
	Ended          int64               `json:"ended"`
	LastTick       *Tick               `json:"last_tick,omitempty"`  // at the source
	FirstTick      *Tick               `json:"first_tick,omitempty"` // at the destination
	QEMUDowntimeMS *float64            `json:"qemu_downtime_ms"`
	Rounds         int                 `json:"rounds"`
	MemoryBytes    int64               `json:"memory_bytes"`       // of the guest's memory
	WireBytes      map[string]int64    `json:"wire_bytes_by_path"` // null before anything is counted, and where an agent's end lost the count
	DiskBytes      int64               `json:"disk_wire_bytes"`
	Left           []string            `json:"left,omitempty"` // files of its disks at the source that are of no use any more: they are at the destination
	Held           *int64              `json:"held_packets"`
	TunnelUp       int64               `json:"tunnel_up"`
	TunnelDown     int64               `json:"tunnel_down"`
	Predicted      *Prediction         `json:"predicted,omitempty"`
	Free           *int64              `json:"free,omitempty"` // bytes of memory that the destination had for guests, in check
	Survey         *Survey             `json:"survey,omitempty"`
	Survival       *Survival           `json:"survival,omitempty"`
	Critical       []Step              `json:"critical_path,omitempty"`
	Old            []migration.Address `json:"old"`
	Next           []migration.Address `json:"next"`
	Notes          []string            `json:"notes,omitempty"`
	DataPath       *DataPath           `json:"data_path,omitempty"` // where it was our own
	PostCopy       *PostCopy           `json:"post_copy,omitempty"` // where the guest ran before its pages were there
	Throttled      *Throttled          `json:"throttled,omitempty"` // where the guest wrote too fast
}

// Tick is one of the guest's own counter, with the time at which its host heard it.
type Tick struct {
	N    uint64 `json:"n"`
	At   int64  `json:"at"`                // unix ns, of the source's clock on both hosts
	Mono int64  `json:"mono_ns,omitempty"` // the guest's own clock, which stands still while it executes nothing; 0: unknown
}

// tickAge is how long a tick stands for those after it: a guest's clock and its host's
// differ by less than a millisecond in that time.
const tickAge = time.Second

// truer is the tick whose hearing was delayed less, of one and a later one: the host's
// clock is less ahead of the guest's. Where the guest's clock is unknown, latest says
// which to keep.
func truer(t, later *Tick, latest bool) *Tick {
	switch {
	case t == nil:
		return later
	case t.Mono == 0 || later.Mono == 0:
		if latest {
			return later
		}
		return t
	case later.At-t.At > int64(tickAge) && latest, later.At-later.Mono < t.At-t.Mono:
		return later
	}
	return t
}

// VMDowntime is for how long the guest executed nothing: from a tick at the source to one
// at the destination, less what it executed between the two by its own clock. So it does
// not matter that a guest which runs again takes a while until a tick is heard: the
// channel is new, and other work is waiting for its processor.
func (r *Report) VMDowntime() (time.Duration, bool) {
	if r.LastTick == nil || r.FirstTick == nil {
		return 0, false
	}
	passed, executed := r.FirstTick.At-r.LastTick.At, r.FirstTick.Mono-r.LastTick.Mono
	if r.LastTick.Mono == 0 || executed < 0 || executed > passed { // such a clock tells nothing
		executed = 0
	}
	return max(time.Duration(passed-executed), r.between()), true
}

// between is from the stop's end to the start's beginning, for which the guest stood still in any case, both
// by the source's clock, as ticks are; 0: not known. A tick that was heard late at the source, or a clock in
// the guest that was set right, would else make its pause shorter than that.
func (r *Report) between() time.Duration {
	start, begun := r.step(stepStart)
	if !begun || r.Paused == 0 {
		return 0
	}
	return time.Duration(start.At - r.Paused)
}

// Prediction is made in check, before the first byte.
type Prediction struct {
	MigrationS float64       `json:"migration_s"`
	DowntimeMS float64       `json:"downtime_ms"`
	WireBytes  int64         `json:"wire_bytes"`
	Throttled  int           `json:"throttled,omitempty"` // how far the guest will have to be, percent
	Memory     *sample.Basis `json:"memory,omitempty"`    // nil: nothing is known of it but how much QEMU has
}

// Record is one migration as it happens. It is safe for use by many.
type Record struct {
	mu     sync.Mutex
	wake   chan struct{} // closed and replaced at every change
	host   string
	plan   migration.Plan
	report Report
	events []Event
	ended  bool
	born   int64 // unix ns, tells the records of an agent's lives apart

	told func(migration.Plan, Event) // hears of each event, outside of mu; nil: nobody
	done func(Report)                // hears of the outcome before anybody is told; nil: nobody

	role    migration.Role   // of this host; "" before it is counted
	carried *metrics.Carrier // counts what the migration carries; nil: not counted
}

// eventsKept bounds the events in memory; progress lines past it are dropped.
const eventsKept = 20000

func newRecord(host string, plan migration.Plan, now time.Time) *Record {
	return &Record{
		host: host, plan: plan, wake: make(chan struct{}), born: time.Now().UnixNano(), report: newReport(plan, now.UnixNano()),
	}
}

// newReport is of a migration of which no more is known.
func newReport(plan migration.Plan, requested int64) Report {
	return Report{
		ID: plan.ID, Guest: plan.Guest, Epoch: plan.Epoch, From: plan.From, To: plan.To, Mode: plan.Mode,
		Transfer: plan.Transfer, Network: plan.Network, Requested: requested,
	}
}

// add appends e, stamping what it lacks.
func (r *Record) add(e Event) {
	r.mu.Lock()
	if len(r.events) >= eventsKept && e.Kind == "progress" {
		r.mu.Unlock()
		return
	}
	e.N = len(r.events) + 1
	if e.At == 0 {
		e.At = time.Now().UnixNano()
	}
	if e.Host == "" {
		e.Host = r.host
	}
	r.events = append(r.events, e)
	r.changed()
	told, plan := r.told, r.plan
	r.mu.Unlock()
	if told != nil {
		told(plan, e)
	}
}

// setPlan keeps what check has completed, for those who hear of events.
func (r *Record) setPlan(plan migration.Plan) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.plan = plan
}

func (r *Record) changed() {
	close(r.wake)
	r.wake = make(chan struct{})
}

// event tells that a named moment has come.
func (r *Record) event(name migration.EventName) { r.add(Event{Kind: "event", Name: name}) }

// note keeps a remark for people.
func (r *Record) note(text string) {
	r.add(Event{Kind: "note", Text: text})
	r.edit(func(rep *Report) { rep.Notes = append(rep.Notes, text) })
}

// noteOnce is note, but for what has been said already.
func (r *Record) noteOnce(text string) {
	r.mu.Lock()
	said := slices.Contains(r.report.Notes, text)
	r.mu.Unlock()
	if !said {
		r.note(text)
	}
}

// progress tells figures that change while a phase runs.
func (r *Record) progress(value any) {
	data, err := json.Marshal(value)
	if err != nil {
		return
	}
	r.add(Event{Kind: "progress", Data: data})
}

// timed performs f and keeps how long it took as a step of the critical path.
func (r *Record) timed(name string, f func() error) error {
	start := time.Now()
	err := f()
	r.took(name, start)
	return err
}

// took keeps a step of the critical path that began then and ends now.
func (r *Record) took(name string, start time.Time) {
	r.edit(func(rep *Report) {
		rep.Critical = append(rep.Critical, Step{name, start.UnixNano(), float64(time.Since(start).Microseconds()) / 1000})
	})
}

// moment keeps when something on the critical path was known.
func (r *Record) moment(name string) {
	now := time.Now().UnixNano()
	r.edit(func(rep *Report) { rep.Critical = append(rep.Critical, Step{Name: name, At: now}) })
}

// enter ends the phase under way and begins the next; "" only ends.
func (r *Record) enter(p migration.Phase, at time.Time) {
	r.mu.Lock()
	entered := r.report.enter(p, at)
	r.mu.Unlock()
	if entered && p != "" {
		r.add(Event{Kind: "phase", Phase: p, At: at.UnixNano()})
	}
}

// enter does so, and says whether the phase was another.
func (r *Report) enter(p migration.Phase, at time.Time) bool {
	if n := len(r.Phases); n > 0 {
		last := &r.Phases[n-1]
		if last.Name == p {
			return false
		}
		if last.End == 0 {
			last.End = at.UnixNano()
		}
	}
	if p != "" {
		r.Phases = append(r.Phases, PhaseSpan{Name: p, Start: at.UnixNano()})
	}
	return true
}

func (r *Record) edit(f func(*Report)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.report)
	r.changed()
}

// moments are when the migration was asked for, and when its guest was stopped, unix ns. A
// snapshot would cost the switch as much as what it is written down with.
func (r *Record) moments() (requested, paused int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.report.Requested, r.report.Paused
}

// snapshot is a copy of the report as it stands.
func (r *Record) snapshot() Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	data, err := json.Marshal(r.report)
	if err != nil {
		return r.report
	}
	var out Report
	if json.Unmarshal(data, &out) != nil {
		return r.report
	}
	return out
}

// end is the last word; watchers see no more after it.
func (r *Record) end(outcome migration.Outcome, problem *migration.Problem, now time.Time) {
	r.enter("", now)
	text := ""
	if problem != nil {
		text = problem.Text
	}
	r.edit(func(rep *Report) {
		rep.Outcome, rep.Problem, rep.Ended = outcome, problem, now.UnixNano()
	})
	if r.done != nil {
		r.done(r.snapshot())
	}
	r.add(Event{Kind: "outcome", Text: string(outcome) + suffix(": ", text)})
	r.mu.Lock()
	r.ended = true
	r.changed()
	r.mu.Unlock()
}

func suffix(sep, s string) string {
	if s == "" {
		return ""
	}
	return sep + s
}

// Watch returns the events after number n as soon as there is one, or none when
// ctx ends; over says that no more will come.
func (r *Record) Watch(ctx context.Context, n int) (events []Event, over bool) {
	for {
		r.mu.Lock()
		if n < len(r.events) {
			events = append(events, r.events[max(n, 0):]...)
		}
		over, wake := r.ended, r.wake
		r.mu.Unlock()
		if len(events) > 0 || over {
			return events, over
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return nil, false
		}
	}
}
