package live

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// print writes a line for every move whose phase is new, and one each second.
func (v *View) print(s Status) {
	for i, m := range s.Moves {
		key := fmt.Sprintf("%d %s", i, m.Guest)
		all := slices.Clone(m.Began)
		if n := len(all); m.Phase != "" && (n == 0 || all[n-1] != m.Phase) {
			all = append(all, m.Phase)
		}
		for _, phase := range all[min(v.said[key], len(all)):] {
			v.write(fmt.Sprintf("%s %s %s → %s: %s\n", clock(s.Elapsed), m.Guest, m.From, m.To, phase))
		}
		v.said[key] = max(v.said[key], len(all))
	}
	if s.Elapsed-v.second < time.Second {
		return
	}
	v.second = s.Elapsed.Truncate(time.Second)
	parts := []string{clock(s.Elapsed)}
	if s.Note != "" {
		parts = append(parts, s.Note)
	}
	for _, m := range s.Moves {
		if !m.Done && m.Total > 0 {
			text := fmt.Sprintf("%s copied %.0f of %.0f MiB of %s", m.Guest, float64(m.Copied)/(1<<20), float64(m.Total)/(1<<20), m.What) + pace(m)
			if m.Details != "" {
				text += ", " + m.Details
			}
			parts = append(parts, text)
		}
	}
	for _, f := range s.Flows {
		text := fmt.Sprintf("%s %s Mbit/s rtt %s gap %s", f.Name, speed(f.Mbps), millis(f.RTT), millis(max(f.Longest, f.Waiting)))
		if f.Dead {
			text += " broken"
		}
		parts = append(parts, text)
	}
	v.write(strings.Join(parts, " | ") + "\n")
}
