package bench

import "godwit/lab/report"

// Handover is what clients feel of a move.
func Handover() Table {
	return Table{Name: "handover", Rows: []Row{idleRow(), uploadRow(), freshRow("download"), freshRow("upload")}}
}

const twoSites = `name: {{.Name}}
sites:
  - {name: montreal, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: public, rate: 350mbit, delay: 5ms}]}
  - {name: sanjose, guest_net: {v4: 10.2.1.0/24}, uplinks: [{name: public, rate: 350mbit, delay: 5ms}]}
clients:
  - {name: phone, at: {{.Client}}}
guests:
  - {name: web, site: {{.Site}}, memory: 256MiB}
traffic:
  - {name: ticks, client: phone, guest: web, kind: ticks, every: 10ms}
{{- if .Flow}}
  - {name: {{.Flow}}, client: phone, guest: web, kind: {{.Flow}}}
{{- end}}
{{- if .Move}}
steps:
  - {at: 6s, migrate: {guest: web, to: sanjose}}
{{- end}}
end: {after_last_migration: 9s, timeout: 120s}
expect:
  - {connections: survive}
  - {leftovers: none}
`

// sites fills twoSites.
type sites struct {
	Name, Client, Site, Flow string
	Move                     bool
}

// idleRow is the promise in numbers: 1.5 RTT + 60 ms of network downtime, and 2 RTT
// more of service gap (an RTT is 20 ms here).
func idleRow() Row {
	return Row{
		Name: "idle", Title: "256 MiB, idle, 350 Mbit/s, RTT 20 ms: the promise in numbers",
		Variants: []Variant{{"godwit", fill(twoSites, sites{Name: "idle", Client: "sanjose", Site: "montreal", Move: true})}},
		Measures: []Measure{networkDowntime, vmDowntime,
			ofFlow("service gap", "ms", "ticks", "service_gap_ms", func(t report.Traffic) *float64 { return t.ServiceGapMS }), dropped},
		Aims: []Aim{
			{Variant: "godwit", Measure: "network downtime", AtMost: 90},
			{Variant: "godwit", Measure: "service gap", AtMost: 130},
			{Variant: "godwit", Measure: "dropped", AtMost: 0},
		},
	}
}

func uploadRow() Row {
	return Row{
		Name: "upload", Title: "256 MiB with an upload at full rate through the switch (Le & Nahum, V-D, lost up to 35 %)",
		Variants: []Variant{{"godwit", fill(twoSites, sites{Name: "upload", Client: "sanjose", Site: "montreal", Flow: "upload", Move: true})}},
		Measures: []Measure{dropped, networkDowntime, vmDowntime},
		Aims:     []Aim{{Variant: "godwit", Measure: "dropped", AtMost: 0}},
	}
}

// freshRow holds a connection that moved against one that was opened to a guest which
// has always been there, from 2 s after the handover, over 5 s.
func freshRow(flow string) Row {
	at := func(site string, move bool) string {
		return fill(twoSites, sites{Name: "fresh-" + flow, Client: "internet", Site: site, Flow: flow, Move: move})
	}
	return Row{
		Name: "fresh-" + flow, Title: "a moved connection (" + flow + ") against one to a guest that was always there",
		Variants: []Variant{{"fresh", at("sanjose", false)}, {"moved", at("montreal", true)}},
		Measures: []Measure{
			settledOf("throughput", "Mbit/s", flow, func(t report.Traffic) report.Windows { return t.Mbps }),
			settledOf("RTT", "ms", flow, func(t report.Traffic) report.Windows { return t.RTTMS }),
		},
		Aims: []Aim{
			{Variant: "moved", Measure: "throughput", Against: "fresh", AtLeast: 0.9, AtMost: 1.1},
			{Variant: "moved", Measure: "RTT", Against: "fresh", AtLeast: 0.9, AtMost: 1.1},
		},
	}
}
