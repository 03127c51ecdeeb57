package metrics

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"godwit/migration"
)

// State is what is true on a host now.
type State struct {
	Running  map[migration.Role]int
	Phases   map[migration.Phase]int // of migrations away from here
	InDoubt  map[migration.Role]int
	Unread   int       // journals
	Expires  time.Time // the host's certificate
	Guests   []Guest
	Detours  map[string]int // by Detours
	Tunnels  map[string]int // by kind
	Directed map[string]int // addresses, by Directions
}

// Guest is a guest under care, or one that is leaving.
type Guest struct {
	Name   string
	Status string          // OtherStatus: not one of Statuses
	Memory int64           // bytes
	Phase  migration.Phase // of the migration by which it leaves; "": none
}

// scrapesMost bounds how many are answered at the same time.
const scrapesMost = 4

// Handler serves everything; look says what is true now.
func (s *Set) Handler(look func(context.Context) State) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case s.serving <- struct{}{}:
			defer func() { <-s.serving }()
		default:
			http.Error(w, "metrics are being asked for by too many", http.StatusServiceUnavailable)
			return
		}
		now := prometheus.NewRegistry()
		now.MustRegister(look(r.Context()))
		promhttp.HandlerFor(prometheus.Gatherers{s.registry, now}, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}).ServeHTTP(w, r)
	})
}

// ofState are the metrics that a State has.
var ofState = []Metric{running, inPhase, inDoubt, journalsUnread, certificate, guests, guestStatus, guestMemory, guestPhase, detours, tunnels, addresses}

// Describe is prometheus.Collector's.
func (s State) Describe(to chan<- *prometheus.Desc) {
	for _, m := range ofState {
		to <- m.desc()
	}
}

// Collect is prometheus.Collector's.
func (s State) Collect(to chan<- prometheus.Metric) {
	send := func(m Metric, value float64, values ...string) {
		to <- prometheus.MustNewConstMetric(m.desc(), prometheus.GaugeValue, value, valid(values)...)
	}
	counts(send, running, s.Running)
	counts(send, inPhase, s.Phases)
	counts(send, inDoubt, s.InDoubt)
	send(journalsUnread, float64(s.Unread))
	if !s.Expires.IsZero() {
		send(certificate, float64(s.Expires.Unix()))
	}
	counts(send, detours, s.Detours)
	counts(send, tunnels, s.Tunnels)
	counts(send, addresses, s.Directed)
	byStatuses, seen := map[string]int{}, map[string]bool{}
	for _, g := range s.Guests {
		name := valid([]string{g.Name})[0]
		if seen[name] {
			continue
		}
		seen[name] = true
		if !known(byStatus, g.Status) {
			g.Status = OtherStatus
		}
		byStatuses[g.Status]++
		send(guestStatus, 1, name, g.Status)
		send(guestMemory, float64(g.Memory), name)
		if known(byPhase, g.Phase) {
			send(guestPhase, 1, name, string(g.Phase))
		}
	}
	counts(send, guests, byStatuses)
}

// counts sends a gauge for every value of its one label.
func counts[W ~string](send func(Metric, float64, ...string), m Metric, by map[W]int) {
	for _, v := range m.Labels[0].Values {
		send(m, float64(by[W(v)]), v)
	}
}
