package random

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"godwit/lab/report"
	"godwit/migration"
)

// slack is what two clocks of one run may differ by, seconds.
const slack = 0.005

// Judge gives a line for each thing in a report that no run of these scenarios may show,
// beside what the file itself expects: a guest in doubt or lost, an outcome without its
// reason, one of ours called internal, numbers that contradict each other, a next address that was silent for longer
// than silence, ms, after the handover.
func Judge(r *report.Report, silence float64) []string {
	var bad []string
	stayed := map[string]bool{} // guests that some migration left where they were: a later one may find them there already
	for i := range r.Migrations {
		m := &r.Migrations[i]
		wrong := func(format string, args ...any) {
			bad = append(bad, fmt.Sprintf("migration %d (%s %s → %s): ", i+1, m.Guest, m.From, m.To)+fmt.Sprintf(format, args...))
		}
		switch m.Outcome {
		case report.Completed:
			whole(m, wrong)
			after(m, silence, wrong)
		case report.Aborted, report.Refused:
			if m.Reason == "" || m.Code == "" {
				wrong("%s without a reason", m.Outcome)
			}
			if m.Code == migration.CodeInternal || m.Code == migration.CodeUsage && !stayed[m.Guest] {
				wrong("%s: %s (%s)", m.Outcome, m.Reason, m.Code)
			}
			stayed[m.Guest] = true
		default:
			wrong("%s: %s", m.Outcome.Word(), m.Reason)
		}
		if c := m.Connections; c != nil && m.Outcome == report.Completed && c.Moved+c.Tunnelled+c.Lost != c.Total {
			wrong("%d connections, but %d moved, %d tunnelled, %d lost", c.Total, c.Moved, c.Tunnelled, c.Lost)
		}
		phases(m, wrong)
		counted(m, wrong)
	}
	return bad
}

// unmet is what the file expects and the report does not show, but for phases of a guest that no migration of it came to
// where one was undone or refused: the steps that waited for them had nothing to wait for.
func unmet(r *report.Report) []string {
	return slices.DeleteFunc(slices.Clone(r.Unmet), func(line string) bool {
		return slices.ContainsFunc(r.Migrations, func(m report.Migration) bool {
			undone := m.Outcome == report.Aborted || m.Outcome == report.Refused
			return undone && strings.HasPrefix(line, "never reached: "+m.Guest+" ")
		})
	})
}

// after holds what became of a guest's connections, as the guest's own list has it, against what their clients felt,
// and says where the next address was silent.
func after(m *report.Migration, silence float64, wrong func(string, ...any)) {
	switch {
	case m.NextSilentMS != nil && *m.NextSilentMS > silence:
		wrong("its next address was silent for %.0f ms after the handover, %.0f are bearable", *m.NextSilentMS, silence)
	case m.NextSilentMS == nil && m.WhyNull["next_silent_ms"] == "":
		wrong("no next_silent_ms")
	}
	s := m.Survival
	if s == nil {
		return
	}
	if sum := s.Moved + s.Tunnelled + s.Ended + s.Lost; sum != s.Total || sum != len(s.Connections) {
		wrong("the guest's list has %d connections, %d in all: %d moved, %d tunnelled, %d ended, %d lost", len(s.Connections), s.Total, s.Moved, s.Tunnelled, s.Ended, s.Lost)
	}
	for _, line := range s.Otherwise {
		wrong("%s", line)
	}
}

// whole holds the numbers of a migration that completed against each other.
func whole(m *report.Migration, wrong func(string, ...any)) {
	for name, n := range map[string]*float64{"total_s": m.TotalS, "migration_s": m.MigrationS, "memory_s": m.MemoryS} {
		switch {
		case n == nil:
			wrong("%s is not known", name)
		case m.TotalS != nil && *n > *m.TotalS+slack:
			wrong("%s is %.3f, total_s %.3f", name, *n, *m.TotalS)
		}
	}
	if began := starts(m); began != nil && m.MemoryS != nil && *m.MemoryS < *began-slack && m.PostCopy != nil && m.PostCopy.Pages > 0 {
		wrong("memory came after the guest began, and yet memory_s is %.3f, and it was started at %.3f", *m.MemoryS, *began)
	}
	switch {
	case m.WireBytes == nil && m.WhyNull["wire_bytes"] != "":
		return // such as by an agent that was killed, with what it had counted
	case m.WireBytes == nil || *m.WireBytes <= 0:
		wrong("no wire_bytes")
		return
	}
	var sum int64
	for _, n := range m.WireBytesByPath {
		sum += n
	}
	if sum > *m.WireBytes {
		wrong("paths carried %d bytes, all together %d", sum, *m.WireBytes)
	}
}

// counted holds that each path was: the lab's kernels count, on all that sites have.
func counted(m *report.Migration, wrong func(string, ...any)) {
	for _, name := range slices.Sorted(maps.Keys(m.WhyNull)) {
		if strings.HasPrefix(name, "wire_bytes_by_path.") {
			wrong("no %s: %s", name, m.WhyNull[name])
		}
	}
}

// starts is when the guest may have begun to run at the destination, s after the request: migration_s is when its
// hypervisor had answered that it does, which takes a slow one half a second. nil: it is not known.
func starts(m *report.Migration) *float64 {
	for i := range m.Steps {
		if m.Steps[i].Name == "start guest" {
			return &m.Steps[i].AtS
		}
	}
	return m.MigrationS
}

func phases(m *report.Migration, wrong func(string, ...any)) {
	end := 0.0
	for _, p := range m.Phases {
		if p.StartS < end-slack || p.EndS < p.StartS {
			wrong("phase %s is from %.3f to %.3f, the one before ended at %.3f", p.Name, p.StartS, p.EndS, end)
		}
		end = p.EndS
	}
	if m.TotalS != nil && end > *m.TotalS+slack {
		wrong("its last phase ends at %.3f, total_s %.3f", end, *m.TotalS)
	}
}
