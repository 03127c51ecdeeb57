package record

import (
	"time"

	"godwit/agent/metrics"
	"godwit/migration"
)

// What the metrics count of a report.

// ByFate counts connections by their fate; nil: of none it is known.
func (s *Survival) ByFate() map[migration.Fate]int {
	if s == nil {
		return nil
	}
	return map[migration.Fate]int{migration.Moved: s.Moved, migration.Tunnelled: s.Tunnelled, migration.EndedItself: s.Ended, migration.Lost: s.Lost}
}

// Carried is what a report says of bytes so far.
func (r *Report) Carried() metrics.Carried {
	c := metrics.Carried{Wire: r.WireBytes, Disk: r.DiskBytes}
	if r.DataPath != nil {
		c.Read, c.Sent = r.DataPath.ReadBytes, r.DataPath.SentBytes
	}
	return c
}

// Times are what a report says of times.
func (r *Report) Times() metrics.Timed {
	t := metrics.Timed{Phases: map[migration.Phase]time.Duration{}, Times: map[string]time.Duration{}}
	for _, p := range r.Phases {
		if p.End != 0 {
			t.Phases[p.Name] += time.Duration(p.End - p.Start)
		}
	}
	if r.Outcome != migration.Completed {
		return t
	}
	for name, at := range map[string]int64{metrics.MigrationTime: r.Resumed, metrics.MemoryTime: r.MemoryDone, metrics.TotalTime: r.Ended} {
		if at != 0 {
			t.Times[name] = time.Duration(at - r.Requested)
		}
	}
	if d, ok := r.VMDowntime(); ok {
		t.Downtime = &d
	}
	return t
}
