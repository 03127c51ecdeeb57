// Package metrics counts what happens on a host, and serves that with what is true now
// in the Prometheus text format.
//
// A counter begins at 0 with its agent and never goes back: what cannot be meant, such as
// a time before its beginning or a count that shrank, is not counted. Every label has a
// bounded list of values: those of package migration, the configuration's hosts and
// uplinks, or the guests under care. A nil *Set counts nothing.
package metrics

import (
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"godwit/agent/hook"
	"godwit/migration"
)

// Set is what one agent counts. It is safe for use by many.
type Set struct {
	registry *prometheus.Registry
	counters map[string]*prometheus.CounterVec
	spans    map[string]*prometheus.HistogramVec
	paths    map[Path]bool
	serving  chan struct{}
}

// Path is a pair of uplinks to another host.
type Path struct{ Peer, Name string }

// Build is what runs, and where.
type Build struct{ Version, Go, Host, Site string }

// buckets are upper bounds in seconds.
var buckets = map[string][]float64{
	phaseSeconds.Name:   {.01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200},
	times.Name:          {.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600},
	vmDowntime.Name:     {.005, .01, .02, .03, .05, .075, .1, .15, .2, .3, .5, 1, 2, 5, 10, 30, 60, 600},
	journalSeconds.Name: {.0001, .00025, .0005, .001, .002, .003, .005, .01, .025, .05, .1, .5, 1, 5},
}

// New makes a Set for a host with these paths to others.
func New(build Build, paths []Path) *Set {
	s := &Set{
		registry: prometheus.NewRegistry(), counters: map[string]*prometheus.CounterVec{}, spans: map[string]*prometheus.HistogramVec{},
		paths: map[Path]bool{}, serving: make(chan struct{}, scrapesMost),
	}
	s.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, m := range All {
		switch m.Type {
		case counter:
			vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: m.Name, Help: m.help()}, m.labels())
			s.counters[m.Name] = vec
			s.registry.MustRegister(vec)
			m.each(func(values ...string) { vec.WithLabelValues(values...) })
		case histogram:
			vec := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: m.Name, Help: m.help(), Buckets: buckets[m.Name]}, m.labels())
			s.spans[m.Name] = vec
			s.registry.MustRegister(vec)
			m.each(func(values ...string) { vec.WithLabelValues(values...) })
		}
	}
	for _, m := range []struct {
		Metric
		values []string
	}{{buildInfo, []string{build.Version, build.Go}}, {hostInfo, []string{build.Host, build.Site}}} {
		vec := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: m.Name, Help: m.help()}, m.labels())
		vec.WithLabelValues(valid(m.values)...).Set(1)
		s.registry.MustRegister(vec)
	}
	for _, p := range paths {
		s.paths[p] = true
		s.counters[wireBytes.Name].WithLabelValues(valid([]string{p.Peer, p.Name})...)
	}
	return s
}

// valid makes values what the format can carry.
func valid(values []string) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = strings.ToValidUTF8(v, "\uFFFD")
	}
	return out
}

// add counts n, but for what cannot be meant.
func (s *Set) add(m Metric, n int64, values ...string) {
	if s == nil || n <= 0 {
		return
	}
	s.counters[m.Name].WithLabelValues(values...).Add(float64(n))
}

// took keeps a time, but for one that cannot be meant.
func (s *Set) took(m Metric, d time.Duration, values ...string) {
	if s == nil || d < 0 || d > longest {
		return
	}
	s.spans[m.Name].WithLabelValues(values...).Observe(d.Seconds())
}

// longest is more than a migration takes: a sum is not to be spoilt by a clock that was set.
const longest = 30 * 24 * time.Hour

// Outcome counts that a migration came to an outcome; code says why not to completed.
func (s *Set) Outcome(role migration.Role, outcome migration.Outcome, problem *migration.Problem) {
	if !known(byRole, role) || !known(byOutcome, outcome) {
		return
	}
	s.add(migrations, 1, string(role), string(outcome))
	if problem != nil && outcome != migration.Completed && known(byCode, problem.Code) {
		s.add(problems, 1, string(role), string(problem.Code))
	}
}

// Timed is what a migration away from here took.
type Timed struct {
	Phases   map[migration.Phase]time.Duration
	Times    map[string]time.Duration // by Times; of those that completed
	Downtime *time.Duration           // nil: not known
}

// Timed keeps the times of a migration that has ended.
func (s *Set) Timed(t Timed) {
	for phase, d := range t.Phases {
		if known(byPhase, phase) {
			s.took(phaseSeconds, d, string(phase))
		}
	}
	for name, d := range t.Times {
		if known(byTime, name) {
			s.took(times, d, name)
		}
	}
	if t.Downtime != nil {
		s.took(vmDowntime, *t.Downtime)
	}
}

// Carried is what a migration has carried away from here so far, bytes.
type Carried struct {
	Wire             map[string]int64 // by path
	Disk, Read, Sent int64
}

// Carrier counts what one migration carries, as it goes on.
type Carrier struct {
	set  *Set
	peer string

	mu    sync.Mutex
	last  Carried
	ended bool
}

// Carrier begins to count for a migration to peer.
func (s *Set) Carrier(peer string) *Carrier { return &Carrier{set: s, peer: peer} }

// Had begins with what an earlier agent has counted already.
func (c *Carrier) Had(before Carried) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = before
}

// Again says that the migration begins again: all but what has left the uplinks counts from nothing.
func (c *Carrier) Again() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = Carried{Wire: c.last.Wire}
}

// Refills says that what is missing is read and sent by lanes of their own from here on: both count from nothing,
// beside what was before.
func (c *Carrier) Refills() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last.Read, c.last.Sent = 0, 0
}

// Carried counts what has come since the last call. After one with ended no other counts.
func (c *Carrier) Carried(now Carried, ended bool) {
	if c == nil || c.set == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	c.ended = ended
	most := Carried{map[string]int64{}, max(now.Disk, c.last.Disk), max(now.Read, c.last.Read), max(now.Sent, c.last.Sent)}
	for path := range c.set.paths {
		if path.Peer != c.peer {
			continue
		}
		was := c.last.Wire[path.Name]
		most.Wire[path.Name] = max(now.Wire[path.Name], was)
		c.set.add(wireBytes, most.Wire[path.Name]-was, valid([]string{path.Peer, path.Name})...)
	}
	c.set.add(diskBytes, most.Disk-c.last.Disk)
	c.set.add(readBytes, most.Read-c.last.Read)
	c.set.add(sentBytes, most.Sent-c.last.Sent)
	c.last = most
}

// Came counts the packets that were held for a guest that came here.
func (s *Set) Came(held *int64) {
	if held != nil {
		s.add(heldPackets, *held)
	}
}

// Became counts connections of a guest that came here which have a fate now that they had
// not before.
func (s *Set) Became(before, after map[migration.Fate]int) {
	for fate, n := range after {
		if known(byFate, fate) {
			s.add(connections, int64(n-before[fate]), string(fate))
		}
	}
}

// Told counts an event.
func (s *Set) Told(event migration.EventName) {
	if known(byEvent, event) {
		s.add(eventsTold, 1, string(event))
	}
}

// HookCalled counts what came of an event for one hook.
func (s *Set) HookCalled(event migration.EventName, result hook.Result) {
	if known(byEvent, event) && known(byResult, result) {
		s.add(hookCalls, 1, string(event), string(result))
	}
}

// Synced keeps how long a record of a journal took to the disk.
func (s *Set) Synced(took time.Duration) { s.took(journalSeconds, took) }

func known[W ~string](l Label, word W) bool {
	for _, v := range l.Values {
		if v == string(word) {
			return true
		}
	}
	return false
}
