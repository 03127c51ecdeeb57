package agent

import (
	"fmt"
	"slices"
	"strings"
)

// noteBeside says which guests are on their way there just now: what of the paths they take nobody foresees, nor what of the same they bring, which
// counts only as long as they are on their way.
func (m *outgoing) noteBeside() {
	var names []string
	for _, rec := range m.a.records.All() {
		rep := rec.Snapshot()
		if rep.ID != m.plan.ID && rep.From == m.plan.From && rep.To == m.plan.To && rep.Outcome == "" && rep.Resumed == 0 {
			names = append(names, rep.Guest)
		}
	}
	if len(names) > 0 {
		slices.Sort(names)
		m.rec.Note(fmt.Sprintf("%s moves there, too: as long as both do they share the paths, and what both hold goes once: it may take longer than foreseen, and fewer bytes, as of each it is foreseen as if it moved alone",
			strings.Join(names, ", ")))
	}
}
