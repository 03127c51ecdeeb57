package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"godwit/lab/scenario"
)

// Check gives one line for each expectation that does not hold, with the number
// that was seen. A trigger that never came, a step that went wrong and a run
// that met its timeout are unmet whatever the file expects.
func Check(s *scenario.Scenario, r *Report) []string {
	c := &checker{s: s, r: r}
	if r.TimedOut {
		c.unmet("the run met its timeout of %s", s.End.Timeout)
	}
	for _, step := range r.Unreached {
		c.unmet("never reached: %s", step)
	}
	for _, trouble := range r.Troubles {
		c.unmet("%s", trouble)
	}
	for _, e := range s.Expect {
		c.check(e)
	}
	return c.lines
}

type checker struct {
	s     *scenario.Scenario
	r     *Report
	lines []string
}

func (c *checker) unmet(format string, args ...any) {
	c.lines = append(c.lines, fmt.Sprintf(format, args...))
}

func (c *checker) check(e scenario.Expect) {
	switch e.Kind {
	case scenario.ExpectMigrations:
		c.migrations(e)
	case scenario.ExpectConnections:
		for _, t := range c.r.Traffic {
			c.survived(t)
		}
		for _, t := range c.s.Traffic {
			if !slices.ContainsFunc(c.r.Traffic, func(seen Traffic) bool { return seen.Name == t.Name }) {
				c.unmet("connections: traffic %s is not in the report", t.Name)
			}
		}
	case scenario.ExpectMoved:
		c.moved()
	case scenario.ExpectServiceGap:
		c.serviceGap(e)
	case scenario.ExpectVMDowntime:
		c.each(e, "vm_downtime_ms", func(m *Migration) *float64 { return m.VMDowntimeMS }, time.Millisecond)
	case scenario.ExpectNetworkDowntime:
		c.each(e, "network_downtime_ms", func(m *Migration) *float64 { return m.NetworkDowntimeMS }, time.Millisecond)
	case scenario.ExpectMigrationTime:
		c.each(e, "migration_s", func(m *Migration) *float64 { return m.MigrationS }, time.Second)
	case scenario.ExpectDroppedPackets:
		c.dropped(e)
	case scenario.ExpectLeftovers:
		if n := len(c.r.Leftovers); n > 0 {
			c.unmet("leftovers: %d, expected none: %s", n, strings.Join(c.r.Leftovers[:min(n, 5)], ", "))
		}
	default:
		c.unmet("%s: unknown expectation", e.Kind)
	}
}

// label names the migration in a line: its number counts from 1.
func label(i int, m *Migration) string {
	return fmt.Sprintf("migration %d (%s %s → %s)", i+1, m.Guest, m.From, m.To)
}

// migrations wants one outcome of all, or one of each in the order of requests.
func (c *checker) migrations(e scenario.Expect) {
	seen := c.r.Migrations
	if len(seen) == 0 {
		c.unmet("migrations: none took place, expected %s", strings.Join(e.Outcomes, ", "))
		return
	}
	if e.Each && len(e.Outcomes) != len(seen) {
		c.unmet("migrations: %d took place, expected %d: %s", len(seen), len(e.Outcomes), strings.Join(e.Outcomes, ", "))
	}
	for i := range seen {
		want := e.Outcomes[min(i, len(e.Outcomes)-1)]
		if string(seen[i].Outcome) == want {
			continue
		}
		line := fmt.Sprintf("migrations: %s %s, expected %s", label(i, &seen[i]), seen[i].Outcome.Word(), want)
		if seen[i].Reason != "" {
			line += ": " + seen[i].Reason
		}
		c.unmet("%s", line)
	}
}

// survived wants a flow alive with every record once and intact. Datagrams may be lost, by links and by a
// guest that does not keep up: those that a migration lost are dropped packets.
func (c *checker) survived(t Traffic) {
	if !t.Survived {
		why := ""
		if len(t.Ended) > 0 {
			why = ": " + t.Ended[0]
		}
		c.unmet("connections: traffic %s did not survive%s", t.Name, why)
	}
	if t.Kind == "exec" || t.Kind == "iperf3" { // they have no records
		return
	}
	counts := map[string]*int64{"records_repeated": t.RecordsRepeated, "corrupt": t.Corrupt}
	if t.Kind != "udp" {
		counts["records_lost"] = t.RecordsLost
	}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		switch n := counts[name]; {
		case n == nil:
			c.unmet("connections: %s of traffic %s is unknown: %s", name, t.Name, why(t.WhyNull, name))
		case *n > 0:
			c.unmet("connections: %s of traffic %s is %d, expected 0", name, t.Name, *n)
		}
	}
}

func (c *checker) serviceGap(e scenario.Expect) {
	i := slices.IndexFunc(c.r.Traffic, func(t Traffic) bool { return t.Name == e.Traffic })
	if i < 0 {
		c.unmet("service_gap: traffic %s is not in the report", e.Traffic)
		return
	}
	t := c.r.Traffic[i]
	if t.ServiceGapMS == nil {
		c.unmet("service_gap: of traffic %s is unknown: %s", t.Name, why(t.WhyNull, "service_gap_ms"))
		return
	}
	if gap := *t.ServiceGapMS * float64(time.Millisecond); gap >= float64(e.Below) {
		c.unmet("service_gap: of traffic %s is %s, expected below %s", t.Name, told(gap), e.Below)
	}
}

// Why a migration that was undone has no VM downtime, and one that was refused no network downtime. Both keep every
// bound.
const (
	NotPaused = "the guest was not paused"
	NotBegun  = "the migration did not begin"
)

// undisturbed says that a migration ended before it touched what a bound is about.
func undisturbed(m *Migration, name string) bool {
	switch name {
	case "vm_downtime_ms":
		return m.Outcome == Refused || m.WhyNull[name] == NotPaused
	case "network_downtime_ms":
		return m.Outcome == Refused
	}
	return false
}

// each wants a number of every migration of the guest below the bound. A migration that
// did not complete may lack it, but for its VM downtime where it disturbed the guest; one at least
// must have it.
func (c *checker) each(e scenario.Expect, name string, of func(*Migration) *float64, unit time.Duration) {
	judged, lacking := false, ""
	for i := range c.r.Migrations {
		m := &c.r.Migrations[i]
		if m.Guest != e.Guest {
			continue
		}
		v := of(m)
		switch {
		case v == nil && undisturbed(m, name):
		case v == nil && m.Outcome != Completed && name != "vm_downtime_ms":
			lacking = cmp.Or(lacking, unknown(i, m, name))
			continue
		case v == nil:
			c.unmet("%s: of %s is unknown: %s", e.Kind, label(i, m), why(m.WhyNull, name))
		default:
			if seen := *v * float64(unit); seen >= float64(e.Below) {
				c.unmet("%s: of %s is %s, expected below %s", e.Kind, label(i, m), told(seen), e.Below)
			}
		}
		judged = true
	}
	if !judged {
		c.unmet("%s: guest %s made no migration that has one, expected below %s%s", e.Kind, e.Guest, e.Below, lacking)
	}
}

func (c *checker) dropped(e scenario.Expect) {
	judged, lacking := false, ""
	for i := range c.r.Migrations {
		m := &c.r.Migrations[i]
		n := cmp.Or(m.DroppedPackets, m.DroppedAtMost)
		if e.Guest != "" && m.Guest != e.Guest {
			continue
		}
		if n == nil && m.Outcome != Completed {
			lacking = cmp.Or(lacking, unknown(i, m, "dropped_packets"))
			continue
		}
		judged = true
		switch {
		case n == nil, m.DroppedPackets == nil && *n > e.AtMost:
			c.unmet("dropped_packets: of %s is unknown: %s", label(i, m), why(m.WhyNull, "dropped_packets"))
		case *n > e.AtMost:
			c.unmet("dropped_packets: of %s is %d, expected at most %d", label(i, m), *n, e.AtMost)
		}
	}
	if !judged {
		c.unmet("dropped_packets: no migration%s has a count, expected at most %d%s", ofGuest(e.Guest), e.AtMost, lacking)
	}
}

// unknown is the end of a line of what no migration has: why this one lacks it.
func unknown(i int, m *Migration, name string) string {
	return fmt.Sprintf(": of %s it is unknown: %s", label(i, m), why(m.WhyNull, name))
}

// ofGuest names the guest that an expectation is of; "": it is of all.
func ofGuest(name string) string {
	if name == "" {
		return ""
	}
	return " of guest " + name
}

func why(reasons map[string]string, name string) string {
	if reason := reasons[name]; reason != "" {
		return reason
	}
	return "no reason was given"
}

// told is a time of so many nanoseconds as a line tells it; a bound is held against what was measured.
func told(ns float64) time.Duration { return time.Duration(ns).Round(10 * time.Microsecond) }
