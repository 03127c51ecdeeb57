// Package record has what is known of a host's migrations: the story of each as it happens (Event, for watchers and
// hooks), what it came to (Report), what became of the guest's connections (Survival), and the history of those that
// have ended (Store).
//
// Another host's words about a migration are cut down before they are kept: Sane.
package record

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"godwit/agent/metrics"
	"godwit/internal/clock"
	"godwit/migration"
	"godwit/policy"
	"godwit/transfer/pages"
)

// Record is one migration as it happens. It is safe for use by many.
type Record struct {
	mu     sync.Mutex
	wake   chan struct{} // closed and replaced at every change
	host   string
	plan   migration.Plan
	report Report
	events []Event
	ended  bool
	order  int64 // among those that have ended since the agent started: by the clock, which may be stepped back, the last would be no longer known than the first
	born   int64 // unix ns, tells the records of an agent's lives apart
	begun  time.Time
	from   int64     // unix ns that the clock showed then, as it went when the migration began
	told   time.Time // when the last progress line was

	// These are set before the migration begins.
	Told    func(migration.Plan, Event) // hears of each event, outside of mu; nil: nobody
	Done    func(Report)                // hears of the outcome before anybody is told; nil: nobody
	Role    migration.Role              // of this host; "" before it is counted
	Carried *metrics.Carrier            // counts what the migration carries; nil: not counted
}

// EventsKept bounds the events in memory; progress lines and notes past it are dropped.
const EventsKept = 20000

// progressShare is what part of the time that a migration takes there is between two progress lines, at least, once that is more than
// progressOften: a copy may go on for days, and watchers are to hear how far it is until its end, of lines that are all kept.
const (
	progressShare = 2000
	progressOften = 200 * time.Millisecond
)

// withOne is all and one more. Of more than most those in the middle are left out: how something began and how it goes
// on says more, of what is repaired forward for days.
func withOne[T any](all []T, one T, most int) []T {
	if over := len(all) + 1 - most; over > 0 {
		all = slices.Delete(all, most/2, most/2+over)
	}
	return append(all, one)
}

// New begins the record of a migration on a host.
func New(host string, plan migration.Plan, now time.Time) *Record {
	r := &Record{
		host: host, plan: plan, wake: make(chan struct{}), born: time.Now().UnixNano(), begun: now, from: now.UnixNano(), report: NewReport(plan, now.UnixNano()),
	}
	r.report.Boot, r.report.Booted = clock.Boot(), r.Now()-int64(clock.SinceBoot())
	return r
}

// Now is the time, unix ns, by the clock as it went when the migration began: how long something took is read off what is
// kept here, and a step of the clock in between would show in that.
func (r *Record) Now() int64 { return r.Stamp(time.Now()) }

// Stamp is Now as it was at t, a time of this process.
func (r *Record) Stamp(t time.Time) int64 { return r.from + int64(t.Sub(r.begun)) }

// Add appends e, stamping what it lacks.
func (r *Record) Add(e Event) {
	r.mu.Lock()
	if len(r.events) >= EventsKept && (e.Kind == "progress" || e.Kind == "note") || e.Kind == "progress" && !r.tells(time.Now()) {
		r.mu.Unlock()
		return
	}
	e.N = len(r.events) + 1
	if e.At == 0 {
		e.At = r.Now()
	}
	if e.Host == "" {
		e.Host = r.host
	}
	r.events = append(r.events, e)
	r.changed()
	told, plan := r.Told, r.plan
	r.mu.Unlock()
	if told != nil {
		told(plan, e)
	}
}

// tells says whether a progress line is due. mu is held.
func (r *Record) tells(now time.Time) bool {
	if least := now.Sub(r.begun) / progressShare; least > progressOften && now.Sub(r.told) < least {
		return false
	}
	r.told = now
	return true
}

// SetPlan keeps what check has completed, for those who hear of events.
func (r *Record) SetPlan(plan migration.Plan) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.plan = plan
}

func (r *Record) changed() {
	close(r.wake)
	r.wake = make(chan struct{})
}

// Event tells that a named moment has come.
func (r *Record) Event(name migration.EventName) { r.Add(Event{Kind: "event", Name: name}) }

// Note keeps a remark for people.
func (r *Record) Note(text string) {
	r.Add(Event{Kind: "note", Text: text})
	r.Edit(func(rep *Report) { rep.Notes = withOne(rep.Notes, text, mostNotes) })
}

// NoteOnce is Note, but for what has been said already.
func (r *Record) NoteOnce(text string) {
	said := false
	r.Edit(func(rep *Report) { // several may say the same at once
		if said = slices.Contains(rep.Notes, text); !said {
			rep.Notes = withOne(rep.Notes, text, mostNotes)
		}
	})
	if !said {
		r.Add(Event{Kind: "note", Text: text})
	}
}

// Progress tells figures that change while a phase runs.
func (r *Record) Progress(value any) {
	data, err := json.Marshal(value)
	if err != nil {
		return
	}
	r.Add(Event{Kind: "progress", Data: data})
}

// Timed performs f and keeps how long it took as a step of the critical path.
func (r *Record) Timed(name string, f func() error) error {
	start := time.Now()
	err := f()
	r.Took(name, start)
	return err
}

// Took keeps a step of the critical path that began then and ends now.
func (r *Record) Took(name string, start time.Time) {
	r.Edit(func(rep *Report) {
		rep.Critical = withOne(rep.Critical, Step{name, r.Stamp(start), float64(time.Since(start).Microseconds()) / 1000}, mostSteps)
	})
}

// Moment keeps when something on the critical path was known.
func (r *Record) Moment(name string) { r.MomentAt(name, time.Now()) }

// MomentAt keeps when something on the critical path was so.
func (r *Record) MomentAt(name string, at time.Time) {
	r.Edit(func(rep *Report) {
		rep.Critical = withOne(rep.Critical, Step{Name: name, At: r.Stamp(at)}, mostSteps)
	})
}

// Enter ends the phase under way and begins the next; "" only ends.
func (r *Record) Enter(p migration.Phase, at time.Time) { r.EnterAt(p, r.Stamp(at)) }

// EnterAt is Enter at such a time as Now is.
func (r *Record) EnterAt(p migration.Phase, at int64) {
	r.mu.Lock()
	entered := r.report.Enter(p, at)
	if entered && p != "" {
		at = r.report.Phases[len(r.report.Phases)-1].Start
	}
	r.mu.Unlock()
	if entered && p != "" {
		r.Add(Event{Kind: "phase", Phase: p, At: at})
	}
}

// Edit changes the report.
func (r *Record) Edit(f func(*Report)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.report)
	r.changed()
}

// Moments are when the migration was asked for, and when its guest was stopped, unix ns. A
// snapshot would cost the switch as much as what it is written down with.
func (r *Record) Moments() (requested, paused int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.report.Requested, r.report.Paused
}

// PagesFollow says whether the guest is to run before its pages are there, and whether its last one came. It is asked in the
// pause, for which a snapshot is too dear.
func (r *Record) PagesFollow() (early, whole bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.report.PostCopy != nil, r.report.MemoryDone != 0
}

// Snapshot is a copy of the report as it stands.
func (r *Record) Snapshot() Report {
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

// End is the last word; watchers see no more after it.
func (r *Record) End(outcome migration.Outcome, problem *migration.Problem, now time.Time) {
	r.Enter("", now)
	text := string(outcome)
	if problem != nil && problem.Text != "" {
		text += ": " + problem.Text
	}
	r.Edit(func(rep *Report) {
		rep.Outcome, rep.Problem, rep.Ended = outcome, problem, r.Stamp(now)
		if stepped := now.UnixNano() - rep.Ended; time.Duration(stepped).Abs() >= time.Second {
			rep.Stepped = stepped
		}
	})
	if r.Done != nil {
		r.Done(r.Snapshot())
	}
	r.Add(Event{Kind: "outcome", Text: text})
	r.mu.Lock()
	r.ended, r.order = true, ends.Add(1)
	r.changed()
	r.mu.Unlock()
}

// ends counts the records that have ended.
var ends atomic.Int64

// place is that of a record that has ended; 0: it has not.
func (r *Record) place() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.order
}

// Watch returns the events after number n as soon as there is one, or none when ctx ends. Where there is no number n it
// was of an earlier agent, and Born tells at once that this one counts anew.
func (r *Record) Watch(ctx context.Context, n int) EventsAnswer {
	answer := EventsAnswer{Born: r.born}
	for {
		r.mu.Lock()
		if n < len(r.events) {
			answer.Events = append(answer.Events, r.events[max(n, 0):]...)
		}
		over, wake, earlier := r.ended, r.wake, n > len(r.events)
		r.mu.Unlock()
		if answer.Over = over; len(answer.Events) > 0 || over || earlier {
			return answer
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return answer
		}
	}
}

// EndedAt is when the migration ended, unix ns; 0: it has not.
func (r *Record) EndedAt() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ended {
		return 0
	}
	return r.report.Ended
}

// connections is how many its report lists.
func (r *Record) connections() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.report.Survival == nil {
		return 0
	}
	return len(r.report.Survival.Connections)
}

// forgetEvents keeps nothing but the report of a migration that has ended.
func (r *Record) forgetEvents() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = nil
}

// Recall begins a record with what an earlier agent took down of its report; what cannot be
// one is left.
func (r *Record) Recall(kept json.RawMessage) {
	var rep Report
	if kept == nil || json.Unmarshal(kept, &rep) != nil || rep.Check() != nil || rep.ID != r.plan.ID {
		return
	}
	rep.Outcome, rep.Problem = "", nil
	if !r.goBy(rep) {
		rep.Boot, rep.Booted = r.report.Boot, r.report.Booted
	}
	r.Edit(func(now *Report) { *now = rep })
}

// goBy has Now be by the clock by which the times of rep are; false: they are of before the host has booted anew, and
// of a step since then nothing is known.
func (r *Record) goBy(rep Report) bool {
	same := rep.Boot != "" && rep.Boot == r.report.Boot
	if same {
		r.from += rep.Booted - r.report.Booted
	}
	return same
}

// Aborted tells that a migration of which hooks had heard came to nothing.
func (r *Record) Aborted(why *migration.Problem) {
	text := ""
	if why != nil {
		text = why.Text
	}
	r.Add(Event{Kind: "event", Name: migration.MigrationAborted, Text: text})
}

// copied is its copy of memory, if it went to that host over our own data path, of a guest that ran or of one that was
// stopped, and its place among what has ended; 0: it is not.
func (r *Record) copied(to string, stopped bool) (c policy.Copied, place int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rep := &r.report
	if rep.From != r.host || rep.To != to || rep.Outcome != migration.Completed || rep.DataPath == nil || (rep.Mode == "stopcopy") != stopped {
		return c, 0
	}
	if rep.PostCopy != nil && rep.PostCopy.Refills > 0 { // the data path is of what was still missing, and the time of all
		return c, 0
	}
	for _, span := range rep.Phases {
		if span.Name == migration.Copy {
			c.Took = time.Duration(span.End - span.Start)
			if rep.PostCopy != nil && rep.MemoryDone > span.End { // what followed the guest is among what was handled
				c.Took = time.Duration(rep.MemoryDone - span.Start)
			}
		}
	}
	if stopped {
		pause := rep.StoodStill()
		if pause <= 0 { // of which nobody knows how long it was, so one before it tells more
			return policy.Copied{}, 0
		}
		c.Took = policy.Began(pause)
	}
	for coding, n := range rep.DataPath.Pages {
		if coding != CodingNames[pages.Zero] {
			c.Handled += n * pages.Size
		}
	}
	c.Wire, c.Rate = rep.DataPath.SentBytes+rep.DataPath.Repeated, r.plan.Bandwidth // what left the uplinks is of all tries
	return c, r.order
}
