package record

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"godwit/agent/sample"
	"godwit/migration"
)

// Event is one line of a migration's story. Kind says which fields are set.
type Event struct {
	N     int                 `json:"n"`  // counts from 1 within the migration
	At    int64               `json:"at"` // unix ns, by the clock of Host as it went when the migration began
	Host  string              `json:"host"`
	Kind  string              `json:"kind"` // phase, event, progress, step, connection, note, outcome
	Phase migration.Phase     `json:"phase,omitempty"`
	Name  migration.EventName `json:"name,omitempty"`
	Text  string              `json:"text,omitempty"`
	Data  json.RawMessage     `json:"data,omitempty"`

	// Of HANDOVER_DONE: what the guest got, which may be other than was planned. By an agent of before that tells: empty.
	Network string              `json:"network,omitempty"`
	Next    []migration.Address `json:"next,omitempty"`
}

// PhaseSpan is when a phase was under way, unix ns; End is 0 while it is.
type PhaseSpan struct {
	Name  migration.Phase `json:"name"`
	Start int64           `json:"start"`
	End   int64           `json:"end"`
}

// Steps by which more than a reader goes.
const (
	StepStop   = "stop guest"
	StepDisks  = "disks in sync"
	StepLoaded = "last byte loaded"
	StepStart  = "start guest"
	StepCame   = "last connection came" // to the next address; known afterwards
	StepRanOn  = "guest runs on"        // at the source, of a migration that was undone
)

// Step is one timed act on the critical path.
type Step struct {
	Name string  `json:"name"`
	At   int64   `json:"at"` // unix ns of its beginning
	MS   float64 `json:"ms"`
}

// around is from the stop's beginning to the end of the last start, outside of which the guest ran, by the source's
// clock; where that is not known, without a bound. By a clock in the guest that goes too fast or too slow, as that of
// an emulated one which booted on a busy host, its pause would else be longer.
func (r *Report) around() time.Duration {
	var stop, end int64
	for _, s := range r.Critical {
		switch {
		case s.Name == StepStop && s.At <= r.Paused:
			stop = max(stop, s.At)
		case s.Name == StepStart && s.At >= r.Paused:
			end = max(end, s.At+int64(s.took()))
		}
	}
	if stop == 0 || end == 0 {
		return math.MaxInt64
	}
	return time.Duration(end - stop)
}

func (s Step) took() time.Duration { return time.Duration(s.MS * float64(time.Millisecond)) }

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
	Booted         int64               `json:"booted,omitempty"` // when this host's kernel began to run, by the clock that the times here are by
	Boot           string              `json:"boot,omitempty"`   // names that run of it; see clock.Boot
	Phases         []PhaseSpan         `json:"phases"`
	Paused         int64               `json:"paused"`  // the source's guest stopped
	Resumed        int64               `json:"resumed"` // the destination's guest runs
	MemoryDone     int64               `json:"memory_done"`
	Handed         int64               `json:"handed"` // handover done
	Ended          int64               `json:"ended"`
	Stepped        int64               `json:"stepped,omitempty"`    // by how much this host's clock was set on until then, ns; less than 0: back
	LastTick       *Tick               `json:"last_tick,omitempty"`  // at the source
	FirstTick      *Tick               `json:"first_tick,omitempty"` // at the destination
	QEMUDowntimeMS *float64            `json:"qemu_downtime_ms"`
	Rounds         int                 `json:"rounds"`
	MemoryBytes    int64               `json:"memory_bytes"`             // of the guest's memory
	WireBytes      map[string]int64    `json:"wire_bytes_by_path"`       // null before anything is counted, and where an agent's end lost the count
	WireUncounted  map[string]string   `json:"wire_uncounted,omitempty"` // paths of which WireBytes has not all, and why
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
	DataPath       *DataPath           `json:"data_path,omitempty"`  // where it was our own
	PostCopy       *PostCopy           `json:"post_copy,omitempty"`  // where the guest ran before its pages were there
	Throttled      *Throttled          `json:"throttled,omitempty"`  // where the guest wrote too fast
	RunsThere      bool                `json:"runs_there,omitempty"` // at its source: the guest was at its destination, though this came to nothing here
}

// NewReport is of a migration of which no more is known.
func NewReport(plan migration.Plan, requested int64) Report {
	return Report{
		ID: plan.ID, Guest: plan.Guest, Epoch: plan.Epoch, From: plan.From, To: plan.To, Mode: plan.Mode,
		Transfer: plan.Transfer, Network: plan.Network, Requested: requested,
	}
}

// Plan is what the report tells of the plan, with the addresses that the guest got.
func (r *Report) Plan() migration.Plan {
	return migration.Plan{
		ID: r.ID, Guest: r.Guest, Epoch: r.Epoch, From: r.From, To: r.To, Mode: r.Mode,
		Transfer: r.Transfer, Network: r.Network, Held: r.Old, Next: r.Next,
	}.Landed("", nil) // one of before has the address that was meant
}

// Anew is the report of the same migration with nothing done yet but for what has left the uplinks: when it was asked
// for is known, and by which clock.
func (r *Report) Anew(plan migration.Plan) Report {
	out := NewReport(plan, r.Requested)
	out.Boot, out.Booted, out.WireBytes, out.WireUncounted = r.Boot, r.Booted, r.WireBytes, r.WireUncounted
	return out
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

// Truer is the tick whose hearing was delayed less, of one and a later one: the host's
// clock is less ahead of the guest's. Where the guest's clock is unknown, latest says
// which to keep.
func Truer(t, later *Tick, latest bool) *Tick {
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
	return min(max(time.Duration(passed-executed), r.between()), r.around()), true
}

// StoodStill is for how long the guest did: by its own counter, or, where that was not heard, by the clocks
// of its hosts.
func (r *Report) StoodStill() time.Duration {
	if d, counted := r.VMDowntime(); counted {
		return d
	}
	if r.Paused == 0 || r.Resumed == 0 {
		return 0
	}
	return time.Duration(r.Resumed - r.Paused)
}

// between is from the stop's end to the start's beginning, for which the guest stood still in any case, both
// by the source's clock, as ticks are; 0: not known. A tick that was heard late at the source, or a clock in
// the guest that was set right, would else make its pause shorter than that.
func (r *Report) between() time.Duration {
	start, begun := r.step(StepStart)
	if !begun || r.Paused == 0 {
		return 0
	}
	return time.Duration(start.At - r.Paused)
}

// step is the first of a name that began after the guest was stopped, as far as that is known.
func (r *Report) step(name string) (Step, bool) {
	i := slices.IndexFunc(r.Critical, func(s Step) bool { return s.Name == name && s.At >= r.Paused })
	if i < 0 {
		return Step{}, false
	}
	return r.Critical[i], true
}

// Longest is what took most of the time for which the guest stood still, by the steps of both hosts.
func (r *Report) Longest() (what string, took time.Duration) {
	see := func(name string, d time.Duration) {
		if d > took {
			what, took = name, d
		}
	}
	stopped := r.Paused
	for _, s := range r.Critical {
		switch s.Name {
		case StepStop:
			see("stopping it", s.took())
		case StepDisks:
			see("its disks, until they were in sync,", s.took())
			stopped = max(stopped, s.At+int64(s.took()))
		}
	}
	loaded, known := r.step(StepLoaded)
	if known && stopped != 0 {
		see("the last of its memory and its devices", time.Duration(loaded.At-stopped))
	}
	if start, begun := r.step(StepStart); begun {
		if known {
			see("handing it over", time.Duration(start.At-loaded.At))
		}
		runs := r.Resumed
		if r.FirstTick != nil {
			runs = r.FirstTick.At
		}
		see("starting it", min(start.took(), time.Duration(runs-start.At))) // a guest may run before QEMU answers
	}
	return what, took
}

// Enter does so, and says whether the phase was another. Handover begins as the guest runs at the destination, of which
// its source hears later; and none begins before the one before it, though its end may have been heard first.
func (r *Report) Enter(p migration.Phase, at int64) bool {
	if p == migration.Handover && r.Resumed != 0 {
		at = r.Resumed
	}
	if n := len(r.Phases); n > 0 {
		last := &r.Phases[n-1]
		if last.Name == p {
			return false
		}
		at = max(at, last.Start)
		if last.End == 0 {
			last.End = at
		}
	}
	if p != "" {
		r.Phases = append(r.Phases, PhaseSpan{Name: p, Start: at})
	}
	return true
}

// hearResumed keeps when the guest ran at the destination, which told it late, or never: its
// agent may have ended before it wrote that down. Then the guest's own counter knows, as it
// stood still from the stop on.
func (r *Report) hearResumed(told int64) {
	d, counted := r.VMDowntime()
	switch {
	case r.Resumed != 0:
	case told != 0:
		r.Resumed = told
	case counted && r.Paused != 0:
		r.Resumed = r.Paused + int64(d)
	}
}

// Check says what is wrong with a report that was read.
func (r *Report) Check() error {
	switch {
	case !migration.ValidID(r.ID):
		return fmt.Errorf("migration id %.100q: not one", r.ID)
	case r.Outcome != "" && !slices.Contains(migration.Outcomes, r.Outcome):
		return fmt.Errorf("migration %s: outcome %.100q is unknown", r.ID, r.Outcome)
	}
	return migration.CheckAddresses(slices.Concat(r.Old, r.Next))
}

// Prediction is made in check, before the first byte.
type Prediction struct {
	MigrationS float64       `json:"migration_s"`
	DowntimeMS float64       `json:"downtime_ms"`
	WireBytes  int64         `json:"wire_bytes"`
	Throttled  int           `json:"throttled,omitempty"` // how far the guest will have to be, percent
	Memory     *sample.Basis `json:"memory,omitempty"`    // nil: nothing is known of it but how much QEMU has
	Beside     []string      `json:"beside,omitempty"`    // other migrations that it takes account of, by id
}

// Throttled is what was done to a guest that wrote too fast.
type Throttled struct {
	Percent int    `json:"percent"` // of the time for which its processors stood still, at the end
	Why     string `json:"why"`
	At      int64  `json:"at"` // unix ns: asked for first
}

// PostCopy is what is known of a guest that ran before its pages were there.
type PostCopy struct {
	Why       string  `json:"why"`        // it was chosen
	Pages     uint64  `json:"pages"`      // that came after the guest ran
	Share     float64 `json:"share"`      // of all pages
	Faults    int     `json:"faults"`     // pages that the guest waited for
	LongestMS float64 `json:"longest_ms"` // such a wait, as the destination's proxy saw it
	MeanMS    float64 `json:"mean_ms"`
	LastedS   float64 `json:"lasted_s"` // from running to the last page
	Refills   int     `json:"refills"`  // times that the rest was taken from the stopped guest again
}

// Waited keeps that the guest waited for so many pages, in sum, and for one the longest. What an agent knew that ended
// is not in it, so nothing of that stays.
func (c *PostCopy) Waited(pages int, sum, longest time.Duration) {
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	c.Faults, c.LongestMS, c.MeanMS = pages, ms(longest), 0
	if pages > 0 {
		c.MeanMS = ms(sum / time.Duration(pages))
	}
}

// Lasted keeps how long the guest ran before its last page was there, however late that is looked at: the
// handover may be done by then.
func (c *PostCopy) Lasted(r *Report) {
	if r.Resumed > 0 && r.MemoryDone > r.Resumed {
		c.LastedS = time.Duration(r.MemoryDone - r.Resumed).Seconds()
	}
}
