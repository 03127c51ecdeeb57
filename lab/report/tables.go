package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"godwit/migration"
)

// table is one of the page's tables. A cell with a hint shows it on hovering. Notes stand below it.
type table struct {
	Title string
	Head  []string
	Rows  [][]cell
	Notes []string
}

// cell is one field of it. Color is the page's variable of the square before the text.
type cell struct{ Text, Hint, Class, Color string }

func (t table) empty() bool { return len(t.Rows)+len(t.Notes) == 0 }

func tables(r *Report) []table {
	list := []table{migrationTable(r), phaseTable(r), predictionTable(r), stepTable(r), trafficTable(r), survivalTable(r)}
	return slices.DeleteFunc(list, table.empty)
}

// known makes the cell of a number, with the reason where it has none.
func known(text, name string, reasons map[string]string) cell {
	if text != dash {
		return cell{Text: text, Class: "num"}
	}
	return cell{Text: dash, Hint: why(reasons, name), Class: "num null"}
}

func migrationTable(r *Report) table {
	t := table{Title: "Migrations", Head: []string{"#", "guest", "from → to", "outcome", "mode, transfer, network", "migration", "memory", "total",
		"VM downtime", "QEMU's", "network downtime", "rounds", "wire", "held", "dropped", "link drops", "tunnel", "moved / tunnelled / lost"}}
	for i := range r.Migrations {
		m := &r.Migrations[i]
		n := func(text, name string) cell { return known(text, name, m.WhyNull) }
		c := m.Connections
		if c == nil {
			c = &Connections{}
		}
		outcome := cell{Text: m.Outcome.Word(), Class: "good"}
		if m.Outcome != Completed {
			outcome = cell{Text: m.Outcome.Word(), Class: "bad", Hint: m.Reason}
			if m.Code != "" {
				outcome.Text += ": " + string(m.Code)
			}
		}
		t.Rows = append(t.Rows, []cell{{Text: strconv.Itoa(i + 1), Class: "num"}, {Text: m.Guest}, {Text: m.From + " → " + m.To}, outcome,
			{Text: strings.Join([]string{m.Mode, m.Transfer, m.Network}, ", ")},
			n(seconds(m.MigrationS), "migration_s"), n(seconds(m.MemoryS), "memory_s"), n(seconds(m.TotalS), "total_s"),
			n(milliseconds(m.VMDowntimeMS), "vm_downtime_ms"), n(milliseconds(m.QEMUDowntimeMS), "qemu_downtime_ms"),
			n(milliseconds(m.NetworkDowntimeMS), "network_downtime_ms"), n(count(m.Rounds), "rounds"), n(size(m.WireBytes), "wire_bytes"),
			n(count(m.HeldPackets), "held_packets"), n(count(m.DroppedPackets), "dropped_packets"), n(count(m.LinkDrops), "link_drops"),
			n(seconds(m.TunnelS), "tunnel_s"), {Text: fmt.Sprintf("%d / %d / %d", c.Moved, c.Tunnelled, c.Lost), Class: "num"}})
	}
	return t
}

func phaseTable(r *Report) table {
	t := table{Title: "Phases", Head: append([]string{"#", "from → to"}, phaseNames()...)}
	for i := range r.Migrations {
		m := &r.Migrations[i]
		row := []cell{{Text: strconv.Itoa(i + 1), Class: "num"}, {Text: m.From + " → " + m.To}}
		for _, name := range phaseNames() {
			c := cell{Text: dash, Hint: "not reached", Class: "num null"}
			if ph, ok := m.phase(name); ok {
				c = cell{Text: seconds(new(ph.length())), Class: "num"}
			}
			row = append(row, c)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// predictionTable sets what was said in the check phase beside what came.
func predictionTable(r *Report) table {
	t := table{Title: "Predicted and measured", Head: []string{"#", "from → to", "migration: predicted", "measured", "", "downtime: predicted", "measured", "", "wire: predicted", "measured", ""}}
	for i := range r.Migrations {
		m := &r.Migrations[i]
		if m.Predicted == nil {
			continue
		}
		p := m.Predicted
		n := func(text, name string) cell { return known(text, name, m.WhyNull) }
		t.Rows = append(t.Rows, []cell{{Text: strconv.Itoa(i + 1), Class: "num"}, {Text: m.From + " → " + m.To},
			n(seconds(p.MigrationS), "predicted"), n(seconds(m.MigrationS), "migration_s"), off(value(p.MigrationS), value(m.MigrationS)),
			n(milliseconds(p.DowntimeMS), "predicted"), n(milliseconds(m.VMDowntimeMS), "vm_downtime_ms"), off(value(p.DowntimeMS), value(m.VMDowntimeMS)),
			n(size(p.WireBytes), "predicted"), n(size(m.WireBytes), "wire_bytes"), off(whole(p.WireBytes), whole(m.WireBytes))})
	}
	return t
}

// stepTable is the critical path, step by step.
func stepTable(r *Report) table {
	t := table{Title: "Steps around the switch", Head: []string{"#", "step", "at", "took", "in the downtime", "kind"}}
	for i := range r.Migrations {
		m := &r.Migrations[i]
		number := cell{Text: strconv.Itoa(i + 1), Class: "num"}
		for _, s := range m.Steps {
			in := ""
			if s.InDowntime {
				in = "yes"
			}
			t.Rows = append(t.Rows, []cell{number, {Text: s.Name}, {Text: fmt.Sprintf("%.4f s", s.AtS), Class: "num"},
				{Text: fmt.Sprintf("%.3f ms", s.MS), Class: "num"}, {Text: in}, {Text: s.Kind}})
		}
		if o := m.Ownership; o != nil {
			t.Rows = append(t.Rows, []cell{number, {Text: "journal and hand-over together"}, {Text: dash, Class: "num"},
				{Text: fmt.Sprintf("%.3f ms", o.TotalMS), Class: "num"}, {Text: fmt.Sprintf("%.3f ms, %.3f ms of them not beside memory", o.DowntimeMS, o.CriticalMS)}, {Text: "sum"}})
		}
	}
	return t
}

func whole(v *int64) float64 {
	if v == nil {
		return value(nil)
	}
	return float64(*v)
}

// off says by how much the measured number is over or under the predicted.
func off(predicted, measured float64) cell {
	share := (measured/predicted - 1) * 100
	if number(share) == dash {
		return cell{Class: "num"}
	}
	return cell{Text: strings.Replace(fmt.Sprintf("%+.0f %%", share), "-", "−", 1), Class: "num mute"}
}

func trafficTable(r *Report) table {
	t := table{Title: "Traffic", Head: []string{"name", "client → guest", "kind", "MPTCP", "survived", "service gap", "before", "lost", "repeated", "corrupt", "bytes",
		"Mbit/s before / during / after", "RTT ms before / during / after", "retransmits"}}
	for i := range r.Traffic {
		f := &r.Traffic[i]
		n := func(text, name string) cell { return known(text, name, f.WhyNull) }
		none := func(v *int64, name string) cell {
			c := n(count(v), name)
			if v != nil && *v > 0 {
				c.Class = "num bad"
			}
			return c
		}
		t.Rows = append(t.Rows, []cell{{Text: f.Name}, {Text: f.Client + " → " + f.Guest}, {Text: f.Kind}, mptcpCell(f), survivedCell(f.Survived),
			n(milliseconds(f.ServiceGapMS), "service_gap_ms"), n(milliseconds(f.GapBeforeMS), "gap_before_ms"),
			none(f.RecordsLost, "records_lost"), none(f.RecordsRepeated, "records_repeated"), none(f.Corrupt, "corrupt"),
			n(size(f.Bytes), "bytes"), windowsCell(f.Mbps, "mbps", f.WhyNull), windowsCell(f.RTTMS, "rtt_ms", f.WhyNull), n(count(f.Retransmits), "retransmits")})
	}
	return t
}

// mptcpCell says whether a flow negotiated it.
func mptcpCell(f *Traffic) cell {
	if f.MPTCP == nil {
		return known(dash, "mptcp", f.WhyNull)
	}
	return cell{Text: yes(*f.MPTCP)}
}

// windowsCell makes the cell of one measure before, during and after, with the reason of each that is missing.
func windowsCell(w Windows, name string, reasons map[string]string) cell {
	c := cell{Text: w.String(), Class: "num"}
	var hints []string
	for _, part := range []struct {
		of   *float64
		when string
	}{{w.Before, "before"}, {w.During, "during"}, {w.After, "after"}} {
		if part.of == nil {
			hints = append(hints, part.when+": "+why(reasons, name+"."+part.when))
		}
	}
	if c.Hint = strings.Join(hints, "; "); len(hints) == 3 {
		c.Class = "num null"
	}
	return c
}

// survivalRows bounds the table of the page; report.json has them all.
const survivalRows = 500

// survivalTable lists every connection of the guests, migration by migration.
func survivalTable(r *Report) table {
	t := table{Title: "Connections", Head: []string{"#", "guest", "kind", "guest's end", "client's end", "became", "now", "why"}}
	classes := map[string]string{string(migration.Moved): "good", string(migration.Lost): "bad"}
	all := 0
	for i := range r.Migrations {
		m := &r.Migrations[i]
		if m.Survival == nil {
			continue
		}
		for _, c := range m.Survival.Connections {
			if all++; len(t.Rows) == survivalRows {
				continue
			}
			t.Rows = append(t.Rows, []cell{{Text: strconv.Itoa(i + 1), Class: "num"}, {Text: m.Guest}, {Text: c.Kind}, {Text: c.Local}, {Text: c.Remote},
				{Text: c.Fate, Class: classes[c.Fate]}, {Text: c.Now}, {Text: c.Why}})
		}
		t.Notes = append(t.Notes, m.Survival.notes(label(i, m))...)
	}
	if more := all - len(t.Rows); more > 0 {
		t.Notes = append([]string{fmt.Sprintf("and %d more in report.json", more)}, t.Notes...)
	}
	return t
}

// notes are what the list is not, of a migration.
func (s *Survival) notes(of string) (lines []string) {
	switch {
	case s.Unknown != "" && len(s.Connections) > 0:
		lines = append(lines, fmt.Sprintf("%s: %s; what is listed was seen in the tunnel", of, s.Unknown))
	case s.Unknown != "":
		lines = append(lines, of+": "+s.Unknown)
	}
	if s.Omitted > 0 {
		lines = append(lines, fmt.Sprintf("%s: %d more, which its guest or its agent did not list", of, s.Omitted))
	}
	for _, line := range s.Otherwise {
		lines = append(lines, of+": "+line)
	}
	return lines
}

func survivedCell(ok bool) cell {
	if ok {
		return cell{Text: "yes", Class: "good"}
	}
	return cell{Text: "no", Class: "bad"}
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// word explains a measure at the page's end.
type word struct{ Name, Means string }

var words = []word{
	{"VM downtime", "the guest executes nothing: from its last tick at the source to its first at the destination, by the guest's own counter; QEMU's own figure stands beside it"},
	{"Network downtime", "longest time without a reply to a UDP echo, sent every 10 ms to the guest's old and next address, a reply from either counting"},
	{"Service gap", "longest time a client's application waited between two records, from the migration's start to the handover's end"},
	{"Packets dropped", "to or from the guest, lost by a host, tap, tunnel or hold between prepare and the handover's end; loss by a link's full queue is counted apart"},
	{"Bytes on the wire", "IP bytes of the migration that left the source's uplinks, retransmissions and disk included, guest traffic not"},
	{"Pages", "left to send: the destination lacks their newest version; in the queue: read from QEMU, waiting or on their way; delivered: the destination has some version, so a page that is written again is delivered and left to send"},
	{"Data path", "our own transfer: of each page that was written several times the newest version is sent, coded by what the destination has already, over every path at once"},
	{"Connections", "moved: a working subflow on the next address; on the old address: alive there, mostly through the tunnel"},
}
