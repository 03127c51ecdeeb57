package metrics

import (
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"godwit/agent/hook"
	"godwit/migration"
	"godwit/netstate/tunnel"
	"godwit/vm"
)

// Metric is one that is served, as its documentation has it.
type Metric struct {
	Name   string
	Type   string // counter, gauge, histogram
	Labels []Label
	Means  string
}

// Label is one of a metric's. Values is the whole list where there is one; all of it is
// served from the start, but of gauges that name guests.
type Label struct {
	Name   string
	Values []string
	From   string // where values come from that have no list
}

// The types.
const (
	counter   = "counter"
	gauge     = "gauge"
	histogram = "histogram"
)

// Times are what a migration's own times are until.
var Times = []string{MigrationTime, MemoryTime, TotalTime}

// The times, as docs/architecture.md defines them.
const (
	MigrationTime = "migration"
	MemoryTime    = "memory"
	TotalTime     = "total"
)

// Detours are what a detour is kept by.
var Detours = []string{Underway, Leased, Kept}

// What a detour is kept by.
const (
	Underway = "underway" // a migration
	Leased   = "leased"   // its lease alone
	Kept     = "kept"     // for good: the guest keeps its address, or is at home
)

// Directions are where the addresses of detours are.
var Directions = []string{Away, Visiting}

// Where an address is.
const (
	Away     = "away"     // it is led from here to its guest elsewhere
	Visiting = "visiting" // its guest is here, away from its home
)

// OtherStatus is each run state of QEMU that has no meaning here, and that of one which
// does not answer.
const OtherStatus = "other"

// Statuses of guests.
var Statuses = append(words(vm.Statuses), OtherStatus)

func words[W ~string](list []W) []string {
	var out []string
	for _, w := range list {
		out = append(out, string(w))
	}
	return out
}

func events() []string {
	var out []string
	for _, m := range migration.Moments {
		out = append(out, string(m.Name))
	}
	return out
}

var (
	byRole    = Label{"role", words(migration.Roles), ""}
	byOutcome = Label{"outcome", words(migration.Outcomes), ""}
	byCode    = Label{"code", words(migration.Codes), ""}
	byPhase   = Label{"phase", words(migration.Phases), ""}
	byTime    = Label{"time", Times, ""}
	byFate    = Label{"fate", words(migration.Fates), ""}
	byEvent   = Label{"event", events(), ""}
	byResult  = Label{"result", words(hook.Results), ""}
	byStatus  = Label{"status", Statuses, ""}
	byDetour  = Label{"by", Detours, ""}
	byKind    = Label{"kind", tunnel.Kinds[1:], ""} // the first, auto, is none of a tunnel that stands
	byPlace   = Label{"place", Directions, ""}
	byPeer    = Label{"peer", nil, "`peers[].host` of the configuration"}
	byPath    = Label{"path", nil, "uplink here `-` uplink there"}
	byGuest   = Label{"guest", nil, "guests under care"}
)

// Every metric. What is timed and what travels is counted at the source, which leads.
var (
	migrations     = Metric{"godwit_migrations_total", counter, []Label{byRole, byOutcome}, "migrations that came to this outcome; one that was in doubt is counted as `in_doubt` and, when that ended, again"}
	problems       = Metric{"godwit_migration_problems_total", counter, []Label{byRole, byCode}, "migrations that did not complete, by the code of their error; also requests that were refused at once"}
	phaseSeconds   = Metric{"godwit_migration_phase_seconds", histogram, []Label{byPhase}, "time that a migration away from here spent in a phase; of one that began again by itself, in that of each try"}
	times          = Metric{"godwit_migration_time_seconds", histogram, []Label{byTime}, "migration time, memory time and total time of completed migrations away from here"}
	vmDowntime     = Metric{"godwit_migration_vm_downtime_seconds", histogram, nil, "time for which a guest that moved away from here executed nothing, by its own counter"}
	wireBytes      = Metric{"godwit_migration_wire_bytes_total", counter, []Label{byPeer, byPath}, "IP bytes of migrations that left this host's uplinks, disks, headers and retransmissions included; without what left by an uplink that cannot be counted (`wire_uncounted` of a migration)"}
	diskBytes      = Metric{"godwit_migration_disk_bytes_total", counter, nil, "bytes that the streams of disks carried away from here"}
	readBytes      = Metric{"godwit_migration_read_bytes_total", counter, nil, "bytes read of QEMU's stream, with transfer lanes"}
	sentBytes      = Metric{"godwit_migration_sent_bytes_total", counter, nil, "bytes of frames that arrived, with transfer lanes; a share of those that were read"}
	heldPackets    = Metric{"godwit_held_packets_total", counter, nil, "packets that waited here for a guest just before it was started"}
	connections    = Metric{"godwit_connections_total", counter, []Label{byFate}, "connections of guests that came here, by what the migration made of them; those that were `tunnelled` are counted again when they have moved, ended or were lost"}
	eventsTold     = Metric{"godwit_events_total", counter, []Label{byEvent}, "events of migrations that happened, told to hooks and watchers of this host"}
	hookCalls      = Metric{"godwit_hook_calls_total", counter, []Label{byEvent, byResult}, "calls of hooks, by what came of them; `dropped`: not called, too many waited"}
	journalSeconds = Metric{"godwit_journal_sync_seconds", histogram, nil, "time that it took to have a journal's record on the disk"}

	buildInfo      = Metric{"godwit_build_info", gauge, []Label{{"version", nil, "`godwit version`"}, {"go", nil, "Go's version"}}, "1"}
	hostInfo       = Metric{"godwit_host_info", gauge, []Label{{"host", nil, "`host` of the configuration"}, {"site", nil, "`site` of the configuration"}}, "1"}
	running        = Metric{"godwit_migrations_running", gauge, []Label{byRole}, "migrations under way"}
	inPhase        = Metric{"godwit_migrations_in_phase", gauge, []Label{byPhase}, "migrations away from here, by the phase under way"}
	inDoubt        = Metric{"godwit_migrations_in_doubt", gauge, []Label{byRole}, "migrations of which neither side may start the guest now; see `godwit recover`"}
	journalsUnread = Metric{"godwit_journals_unread", gauge, nil, "journals that cannot be read and were left alone"}
	certificate    = Metric{"godwit_certificate_expiry_timestamp_seconds", gauge, nil, "when this host's certificate ends, by which other hosts believe it"}
	guests         = Metric{"godwit_guests", gauge, []Label{byStatus}, "guests under care, by what their QEMU says; `other` also where it does not answer"}
	guestStatus    = Metric{"godwit_guest_status", gauge, []Label{byGuest, byStatus}, "1 for the state in which the guest is, no other is served"}
	guestMemory    = Metric{"godwit_guest_memory_bytes", gauge, []Label{byGuest}, "memory of a guest under care"}
	guestPhase     = Metric{"godwit_guest_migration_phase", gauge, []Label{byGuest, byPhase}, "1 for the phase under way of a guest that is leaving, no other is served"}
	detours        = Metric{"godwit_detours", gauge, []Label{byDetour}, "detours, by what keeps them: a migration `underway`, a lease alone, or nothing that ends"}
	tunnels        = Metric{"godwit_tunnels", gauge, []Label{byKind}, "tunnels of detours"}
	addresses      = Metric{"godwit_detour_addresses", gauge, []Label{byPlace}, "addresses that take a detour: `away` from this home or `visiting` here"}
)

// All lists every metric of ours, in the order of the documentation.
var All = []Metric{
	migrations, problems, phaseSeconds, times, vmDowntime, wireBytes, diskBytes, readBytes, sentBytes, heldPackets,
	connections, eventsTold, hookCalls, journalSeconds,
	buildInfo, hostInfo, running, inPhase, inDoubt, journalsUnread, certificate, guests, guestStatus, guestMemory, guestPhase, detours, tunnels, addresses,
}

func (m Metric) labels() []string {
	var out []string
	for _, l := range m.Labels {
		out = append(out, l.Name)
	}
	return out
}

// help is Means without its marks.
func (m Metric) help() string { return strings.ReplaceAll(m.Means, "`", "") }

func (m Metric) desc() *prometheus.Desc {
	return prometheus.NewDesc(m.Name, m.help(), m.labels(), nil)
}

// each calls f for every combination of values, where all labels have lists.
func (m Metric) each(f func(values ...string)) {
	var walk func(labels []Label, so []string)
	walk = func(labels []Label, so []string) {
		if len(labels) == 0 {
			f(so...)
			return
		}
		for _, v := range labels[0].Values {
			walk(labels[1:], append(so[:len(so):len(so)], v))
		}
	}
	walk(m.Labels, nil)
}

// Table is the list for docs/metrics.md.
func Table() string {
	var out strings.Builder
	for _, m := range All {
		labels := strings.Join(m.labels(), "`, `")
		if labels != "" {
			labels = "`" + labels + "`"
		}
		fmt.Fprintf(&out, "| `%s` | %s | %s | %s |\n", m.Name, m.Type, labels, m.Means)
	}
	return out.String()
}

// LabelTable lists the values of every label, for docs/metrics.md.
func LabelTable() string {
	var out strings.Builder
	seen := map[string]bool{}
	for _, m := range All {
		for _, l := range m.Labels {
			values := l.From
			if l.Values != nil {
				values = "`" + strings.Join(l.Values, "`, `") + "`"
			}
			if !seen[l.Name] {
				fmt.Fprintf(&out, "| `%s` | %s |\n", l.Name, values)
			}
			seen[l.Name] = true
		}
	}
	return out.String()
}
