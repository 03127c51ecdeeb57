// Package report holds what a run of the lab gave: report.json as the contract
// "the report" defines it, the judgement against the scenario's expectations,
// the terminal's closing summary and the self-contained report.html.
//
// A number that could not be measured is null in the JSON and nil here, and the
// reason stands beside it in why_null, under the number's JSON name. Times whose
// name ends in _s are seconds; those of a migration count from its request,
// those of the series from time 0 of the run.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"godwit/internal/oneline"
	"godwit/migration"
)

// Report is one run.
type Report struct {
	Scenario   string      `json:"scenario"`
	OK         bool        `json:"ok"`    // every expectation holds
	Unmet      []string    `json:"unmet"` // one line for each that does not
	Migrations []Migration `json:"migrations"`
	Traffic    []Traffic   `json:"traffic"`
	Leftovers  []string    `json:"leftovers"` // what the run left on the machine

	// Beside the contract.
	Started   string            `json:"started,omitempty"` // RFC 3339, of time 0
	DurationS float64           `json:"duration_s"`        // from time 0 to the end
	TimedOut  bool              `json:"timed_out"`         // the run met end.timeout
	Unreached []string          `json:"unreached"`         // steps whose trigger never came, as text
	Troubles  []string          `json:"troubles"`          // steps that went wrong, as text: each makes the run unmet
	LinkDrops int64             `json:"link_drops"`        // packets that full queues of links dropped while traffic ran
	Machine   map[string]string `json:"machine,omitempty"` // kernel, qemu, accel, links and such
	Series    *Series           `json:"series,omitempty"`  // for the picture
}

// Outcome is one of migration.Outcomes, or "", null in JSON: the run ended before there was one.
type Outcome string

// MarshalJSON writes it.
func (o Outcome) MarshalJSON() ([]byte, error) {
	if o == "" {
		return []byte("null"), nil
	}
	return json.Marshal(string(o))
}

// Word is for a person.
func (o Outcome) Word() string {
	if o == "" {
		return "without outcome"
	}
	return string(o)
}

// The outcomes of a migration.
const (
	Completed = Outcome(migration.Completed)
	Aborted   = Outcome(migration.Aborted)
	Refused   = Outcome(migration.Refused)
	InDoubt   = Outcome(migration.InDoubt)
	Failed    = Outcome(migration.Failed)
)

// Migration is what one move of a guest took.
type Migration struct {
	Guest             string           `json:"guest"`
	From              string           `json:"from"`
	To                string           `json:"to"`
	Outcome           Outcome          `json:"outcome"`
	Mode              string           `json:"mode"`
	Transfer          string           `json:"transfer"`
	Network           string           `json:"network"`
	TotalS            *float64         `json:"total_s"`     // request accepted → source's guest cleaned up
	MigrationS        *float64         `json:"migration_s"` // request accepted → guest runs at the destination
	MemoryS           *float64         `json:"memory_s"`    // request accepted → its last page is there
	VMDowntimeMS      *float64         `json:"vm_downtime_ms"`
	QEMUDowntimeMS    *float64         `json:"qemu_downtime_ms"`
	NetworkDowntimeMS *float64         `json:"network_downtime_ms"`
	Rounds            *int64           `json:"rounds"`
	MemoryBytes       *int64           `json:"memory_bytes"`
	WireBytes         *int64           `json:"wire_bytes"` // IP bytes that left the source's uplinks
	WireBytesByPath   map[string]int64 `json:"wire_bytes_by_path"`
	DiskWireBytes     *int64           `json:"disk_wire_bytes"`
	HeldPackets       *int64           `json:"held_packets"`
	DroppedPackets    *int64           `json:"dropped_packets"`
	LinkDrops         *int64           `json:"link_drops"`
	TunnelS           *float64         `json:"tunnel_s"`
	Phases            []Phase          `json:"phases"`
	Predicted         *Predicted       `json:"predicted"`
	Connections       *Connections     `json:"connections"`

	// Beside the contract.
	RequestedS    float64           `json:"requested_s"`               // when the request was accepted, from time 0
	SwitchedS     *float64          `json:"switched_s"`                // when the guest ran at the destination, from time 0
	DroppedAtMost *int64            `json:"dropped_at_most,omitempty"` // a bound of dropped_packets, where that is not known
	NextSilentMS  *float64          `json:"next_silent_ms"`            // longest time without an answer of its next address, from the end of the handover to the outcome
	Reason        string            `json:"reason,omitempty"`          // why it did not complete
	Code          migration.Code    `json:"code,omitempty"`            // of that, for programs
	Steps         []Step            `json:"steps,omitempty"`           // timed acts of the agents around the switch
	Ownership     *Ownership        `json:"ownership,omitempty"`
	Notes         []string          `json:"notes,omitempty"` // what the agents remarked
	Survival      *Survival         `json:"survival,omitempty"`
	CPUS          *float64          `json:"cpu_s,omitempty"`       // processor time of both hosts, without guests' own; benches only
	LeastBytes    *int64            `json:"least_bytes,omitempty"` // what its memory takes at the least; benches only
	Slowdown      *float64          `json:"slowdown,omitempty"`    // how many times fewer pages its loads wrote while it moved; benches only
	DataPath      json.RawMessage   `json:"data_path,omitempty"`   // figures of our own data path, as the source told them last
	PostCopy      *PostCopy         `json:"post_copy,omitempty"`   // where the guest ran before its pages were there
	Throttled     *Throttled        `json:"throttled,omitempty"`   // where the guest wrote too fast for mode precopy
	WhyNull       map[string]string `json:"why_null,omitempty"`
}

// PostCopy is what is known of a guest that ran before its pages were there.
type PostCopy struct {
	Why       string  `json:"why"`    // it was chosen, and when
	Pages     uint64  `json:"pages"`  // that came after
	Share     float64 `json:"share"`  // of all
	Faults    int     `json:"faults"` // pages that the guest waited for
	LongestMS float64 `json:"longest_ms"`
	MeanMS    float64 `json:"mean_ms"`
	LastedS   float64 `json:"lasted_s"`
	Refills   int     `json:"refills"` // times that the rest was taken from the stopped guest again
}

// Line is for a summary.
func (p *PostCopy) Line() string {
	line := fmt.Sprintf("%.0f %% of the pages came after, within %.1f s; the guest waited for %d (mean %.0f ms, longest %.0f ms)",
		p.Share*100, p.LastedS, p.Faults, p.MeanMS, p.LongestMS)
	if p.Refills > 0 {
		line += fmt.Sprintf("; taken up again %d times", p.Refills)
	}
	return line
}

// Throttled is what was done to a guest that wrote faster than mode precopy could follow.
type Throttled struct {
	Percent int     `json:"percent"` // of the time for which its processors stood still, at the end
	Why     string  `json:"why"`
	AtS     float64 `json:"at_s"` // asked for first, after the request
}

// Survival is what became of every connection that the guest had, by its own list.
type Survival struct {
	Total       int        `json:"total"`
	Moved       int        `json:"moved"`     // a working subflow on the next address
	Tunnelled   int        `json:"tunnelled"` // alive on the old address
	Ended       int        `json:"ended"`     // closed by one of its ends
	Lost        int        `json:"lost"`
	Connections []Survivor `json:"connections"`
	Omitted     int        `json:"omitted,omitempty"`   // not listed, and not in Total
	Unknown     string     `json:"unknown,omitempty"`   // why there is no list of the guest's own
	Otherwise   []string   `json:"otherwise,omitempty"` // what the lab's clients saw otherwise, a line each
}

// Survivor is one of the guest's connections.
type Survivor struct {
	Kind   string  `json:"kind"`   // mptcp, tcp, udp
	Local  string  `json:"local"`  // the guest's address and port before the move
	Remote string  `json:"remote"` // the client's
	Fate   string  `json:"fate"`   // moved, tunnelled, ended, lost
	Now    string  `json:"now,omitempty"`
	Why    string  `json:"why,omitempty"`
	AtS    float64 `json:"at_s,omitempty"` // when it ended or was lost, after the request
}

// Line is the sums in words, of what there is.
func (s *Survival) Line() string {
	parts := []string{oneline.Many(s.Total, "connection")}
	for _, p := range []struct {
		n    int
		word string
	}{{s.Moved, "moved"}, {s.Tunnelled, "on the old address"}, {s.Ended, "ended by themselves"}, {s.Lost, "lost"}, {s.Omitted, "more not listed"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.word))
		}
	}
	return strings.Join(parts, ", ")
}

// Phase is one phase of a migration, in seconds after its request.
type Phase struct {
	Name   string  `json:"name"`
	StartS float64 `json:"start_s"`
	EndS   float64 `json:"end_s"`
}

// Step is one timed act.
type Step struct {
	Name string  `json:"name"`
	AtS  float64 `json:"at_s"` // after the request
	MS   float64 `json:"ms"`

	Kind       string `json:"kind,omitempty"`        // journal, or hand-over: what passing the right on costs; "": other work
	InDowntime bool   `json:"in_downtime,omitempty"` // some of it while the guest executed nothing
}

// Ownership is what passing the right to run the guest on cost: the sum of the steps of
// kind journal and hand-over. Bytes on their way and the hypervisor's work are not in it. What
// was done while the last of memory was still on its way made the downtime no longer: only the
// rest of it is critical.
type Ownership struct {
	DowntimeMS float64 `json:"downtime_ms"`
	CriticalMS float64 `json:"critical_ms"`
	TotalMS    float64 `json:"total_ms"`
}

// Predicted is what the check phase expected.
type Predicted struct {
	MigrationS *float64 `json:"migration_s"`
	DowntimeMS *float64 `json:"downtime_ms"`
	WireBytes  *int64   `json:"wire_bytes"`

	Throttled int `json:"throttled,omitempty"` // percent; beside the contract
}

// Connections counts those of the lab's traffic that had begun when the guest ran at the destination.
type Connections struct {
	Total     int `json:"total"`
	Moved     int `json:"moved"`     // a working subflow on the next address
	Tunnelled int `json:"tunnelled"` // still alive through the tunnel
	Lost      int `json:"lost"`
	Unable    int `json:"unable,omitempty"` // of the total: of clients that cannot follow
}

// Traffic is what the client of one flow felt.
type Traffic struct {
	Name            string   `json:"name"`
	Client          string   `json:"client"`
	Guest           string   `json:"guest"`
	Kind            string   `json:"kind"`
	MPTCP           *bool    `json:"mptcp"` // really negotiated
	Survived        bool     `json:"survived"`
	ServiceGapMS    *float64 `json:"service_gap_ms"`
	GapBeforeMS     *float64 `json:"gap_before_ms"`
	RecordsLost     *int64   `json:"records_lost"`
	RecordsRepeated *int64   `json:"records_repeated"`
	Corrupt         *int64   `json:"corrupt"`
	Bytes           *int64   `json:"bytes"`
	Mbps            Windows  `json:"mbps"`
	RTTMS           Windows  `json:"rtt_ms"`
	Retransmits     *int64   `json:"retransmits"`

	// Beside the contract.
	Connections int               `json:"connections,omitempty"`
	ConnectedMS *float64          `json:"connected_ms,omitempty"` // until all of them were accepted, at the flow's start
	Ended       []string          `json:"ended,omitempty"`        // what ended connections before the run did, each reason once
	WhyNull     map[string]string `json:"why_null,omitempty"`
}

// Windows is one measure before, during and after the migrations.
type Windows struct {
	Before *float64 `json:"before"`
	During *float64 `json:"during"`
	After  *float64 `json:"after"`
}

// Write writes report.json: nothing is missing in it, lists are never null.
func (r *Report) Write(w io.Writer) error {
	out := *r
	out.Unmet = some(r.Unmet)
	out.Leftovers = some(r.Leftovers)
	out.Unreached = some(r.Unreached)
	out.Troubles = some(r.Troubles)
	out.Migrations = some(r.Migrations)
	out.Traffic = some(r.Traffic)
	out.Series = r.Series.whole()
	for i := range out.Migrations {
		m := &out.Migrations[i]
		m.WhyNull = explained(m.WhyNull, m.numbers())
		m.Phases = some(m.Phases)
		if m.Survival != nil {
			s := *m.Survival
			s.Connections = some(s.Connections)
			m.Survival = &s
		}
		if m.WireBytesByPath == nil {
			m.WireBytesByPath = map[string]int64{}
		}
		if m.Predicted == nil {
			m.Predicted = &Predicted{}
			for _, name := range []string{"migration_s", "downtime_ms", "wire_bytes"} {
				m.WhyNull["predicted."+name] = m.WhyNull["predicted"] // as explained says
			}
		}
		if m.Connections == nil {
			m.Connections = &Connections{}
		}
	}
	for i := range out.Traffic {
		t := &out.Traffic[i]
		t.WhyNull = explained(t.WhyNull, t.numbers())
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	if err := enc.Encode(&out); err != nil {
		return fmt.Errorf("write report of %s: %w", r.Scenario, err)
	}
	return nil
}

// Read reads what Write wrote. Unknown fields are an error: reports and their
// readers have the same version.
func Read(rd io.Reader) (*Report, error) {
	dec := json.NewDecoder(rd)
	dec.DisallowUnknownFields()
	var r Report
	if err := dec.Decode(&r); err != nil {
		return nil, fmt.Errorf("read report: %w", err)
	}
	return &r, nil
}

// some copies a list, so that neither nil nor the caller's array is used.
func some[T any](list []T) []T {
	return append(make([]T, 0, len(list)), list...)
}
