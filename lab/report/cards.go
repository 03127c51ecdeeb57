package report

import (
	"fmt"
	"slices"
	"strings"

	"godwit/internal/oneline"
	"godwit/migration"
)

// card is one of the numbers at the top of the page and of the terminal's
// summary. Class is good, bad or empty.
type card struct {
	Label, Value, Note, Class string
	unknown                   string // of how many of all the number is not known, where it is of others
}

// cards sums the run up. Of a number that each migration or flow has, the worst.
func cards(r *Report) []card {
	return []card{
		outcomeCard(r),
		worstMigration(r, "VM downtime", func(m *Migration) *float64 { return m.VMDowntimeMS }),
		worstMigration(r, "Network downtime", func(m *Migration) *float64 { return m.NetworkDowntimeMS }),
		gapCard(r),
		recordsCard(r),
		droppedCard(r),
		connectionsCard(r),
		wireCard(r),
	}
}

func outcomeCard(r *Report) card {
	times := map[Outcome]int{}
	for _, m := range r.Migrations {
		times[m.Outcome]++
	}
	c := card{Label: "Migrations", Value: fmt.Sprintf("%d of %d", times[Completed], len(r.Migrations)), Note: Completed.Word(), Class: "good"}
	var others []string
	for _, outcome := range append(slices.Clone(migration.Outcomes), "") {
		if o := Outcome(outcome); o != Completed && times[o] > 0 {
			others = append(others, fmt.Sprintf("%d %s", times[o], o.Word()))
		}
	}
	if len(others) > 0 {
		c.Class, c.Note = "bad", strings.Join(others, ", ")
	}
	if len(r.Migrations) == 0 {
		c.Class, c.Note = "", "none was asked for"
	}
	return c
}

func worstMigration(r *Report, name string, of func(*Migration) *float64) card {
	c := card{Label: name, Value: dash, Note: "not measured"}
	var worst *float64
	unknown := 0
	for i := range r.Migrations {
		m := &r.Migrations[i]
		switch v := of(m); {
		case v == nil && m.Outcome == Completed: // others may have none
			unknown++
		case v != nil && (worst == nil || *v > *worst):
			worst = v
			c.Value, c.Note = milliseconds(v), m.From+" → "+m.To
			if len(r.Migrations) > 1 {
				c.Note = "worst: " + c.Note
			}
		}
	}
	return c.lacks(unknown, len(r.Migrations), "migration")
}

// lacks says of how many of all things the card's number is not known.
func (c card) lacks(unknown, all int, thing string) card {
	if unknown > 0 && c.Value != dash {
		c.unknown = fmt.Sprintf("not known of %d of %s", unknown, oneline.Many(all, thing))
		c.Note += "; " + c.unknown
	}
	return c
}

func gapCard(r *Report) card {
	c := card{Label: "Service gap", Value: dash, Note: "not measured"}
	var worst *float64
	unknown := 0
	for i := range r.Traffic {
		t := &r.Traffic[i]
		switch v := t.ServiceGapMS; {
		case v == nil && t.Kind != "exec":
			unknown++
		case v != nil && (worst == nil || *v > *worst):
			worst = v
			c.Value, c.Note = milliseconds(v), "worst: "+t.Name
			if t.GapBeforeMS != nil {
				c.Note += ", before " + milliseconds(t.GapBeforeMS)
			}
		}
	}
	return c.lacks(unknown, len(r.Traffic), "flow")
}

func recordsCard(r *Report) card {
	var lost, repeated, corrupt int64
	known, unknown := 0, 0
	for _, t := range r.Traffic {
		for _, n := range []struct {
			seen *int64
			sum  *int64
		}{{t.RecordsLost, &lost}, {t.RecordsRepeated, &repeated}, {t.Corrupt, &corrupt}} {
			if n.seen != nil {
				known++
				*n.sum += *n.seen
			}
		}
		if t.RecordsLost == nil && t.Kind != "exec" && t.Kind != "iperf3" { // those have none
			unknown++
		}
	}
	if known == 0 {
		return card{Label: "Records lost", Value: dash, Note: "not measured"}
	}
	c := card{Label: "Records lost", Value: group(lost), Class: "good", Note: fmt.Sprintf("%s repeated, %s corrupt", group(repeated), group(corrupt))}
	if unknown > 0 {
		c.Class = ""
		c = c.lacks(unknown, len(r.Traffic), "flow")
	}
	if lost+repeated+corrupt > 0 {
		c.Class = "bad"
	}
	return c
}

func droppedCard(r *Report) card {
	var dropped, held int64
	known, unknown := 0, 0
	for _, m := range r.Migrations {
		switch {
		case m.DroppedPackets != nil:
			known++
			dropped += *m.DroppedPackets
		case m.Outcome != Refused:
			unknown++
		}
		if m.HeldPackets != nil {
			held += *m.HeldPackets
		}
	}
	c := card{Label: "Packets dropped", Value: dash, Note: "not measured"}
	if known > 0 {
		c.Value, c.Class = group(dropped), "good"
		// Not the sum of the migrations': those that were under way at the same time have the same drops.
		c.Note = fmt.Sprintf("%s held, %s by full links in all of the run", group(held), group(r.LinkDrops))
	}
	if known > 0 && unknown > 0 {
		c.Class = ""
		c = c.lacks(unknown, len(r.Migrations), "migration")
	}
	if dropped > 0 {
		c.Class = "bad"
	}
	return c
}

func connectionsCard(r *Report) card {
	var sum Connections
	for _, m := range r.Migrations {
		if m.Connections == nil {
			continue
		}
		sum.Lost += m.Connections.Lost // also by a migration that did not complete
		if m.Outcome == Completed {
			sum.Total += m.Connections.Total
			sum.Moved += m.Connections.Moved
			sum.Tunnelled += m.Connections.Tunnelled
		}
	}
	c := card{Label: "Connections moved", Value: fmt.Sprintf("%d of %d", sum.Moved, sum.Total),
		Note: fmt.Sprintf("%d on the old address, %d lost", sum.Tunnelled, sum.Lost)}
	switch {
	case sum.Lost > 0:
		c.Class = "bad"
	case sum.Total > 0:
		c.Class = "good"
	}
	return c
}

func wireCard(r *Report) card {
	var wire, memory int64
	unknown := 0
	for i := range r.Migrations {
		m := &r.Migrations[i]
		_, began := m.phase(string(migration.Seed)) // from when on bytes are counted
		switch {
		case m.WireBytes != nil && m.MemoryBytes != nil:
			wire += *m.WireBytes
			memory += *m.MemoryBytes
		case began:
			unknown++
		}
	}
	if wire == 0 {
		return card{Label: "Bytes on the wire", Value: dash, Note: "not measured"}
	}
	c := card{Label: "Bytes on the wire", Value: bytesText(float64(wire)), Note: "for " + bytesText(float64(memory)) + " of memory"}
	return c.lacks(unknown, len(r.Migrations), "migration")
}
