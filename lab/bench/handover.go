package bench

import (
	"fmt"

	"godwit/lab/report"
)

// Handover is what clients feel of a move.
func Handover() Table {
	return Table{Name: "handover", Rows: []Row{
		idleRow(), uploadRow(), datagramsRow(), freshRow("download"), freshRow("upload"),
		followRow(1, 90), followRow(100, 160), crowdRow(1000, "512MiB"), crowdRow(10000, "3GiB"), paperRow(),
	}}
}

const twoSites = `name: {{.Name}}
sites:
  - {name: montreal, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: public, rate: 350mbit, delay: 5ms}]}
  - {name: sanjose, guest_net: {v4: 10.2.1.0/24}, uplinks: [{name: public, rate: 350mbit, delay: 5ms}]}
clients:
  - {name: phone, at: {{.Client}}}
guests:
  - {name: web, site: {{.Site}}, memory: {{or .Memory "256MiB"}}}
traffic:
  - {name: ticks, client: phone, guest: web, kind: ticks, every: {{or .Every "10ms"}}}
{{- if .Flow}}
  - {name: {{.Flow}}, client: phone, guest: web, kind: {{.Flow}}{{if .Options}}, {{.Options}}{{end}}}
{{- end}}
{{- if .Move}}
steps:
  - {at: 6s, migrate: {guest: web, to: sanjose}}
{{- end}}
end: {after_last_migration: 9s, timeout: {{or .Timeout "120s"}}}
expect:
  - {connections: survive}
  - {leftovers: none}
`

// sites fills twoSites.
type sites struct {
	Name, Client, Site, Flow, Options string
	Memory                            string // "" is 256MiB
	Every                             string // of the ticks; "" is 10ms
	Timeout                           string // "" is 120s
	Move                              bool
}

// idleRow is the promise in numbers: 1.5 RTT + 60 ms of network downtime, and 2 RTT
// more of service gap (an RTT is 20 ms here).
func idleRow() Row {
	return Row{
		Name: "idle", Title: "256 MiB, idle, 350 Mbit/s, RTT 20 ms: the promise in numbers",
		Variants: []Variant{{Name: "godwit", Scenario: fill(twoSites, sites{Name: "idle", Client: "sanjose", Site: "montreal", Move: true})}},
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
		Variants: []Variant{{Name: "godwit", Scenario: fill(twoSites, sites{Name: "upload", Client: "sanjose", Site: "montreal", Flow: "upload", Move: true})}},
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
		Variants: []Variant{{Name: "fresh", Scenario: at("sanjose", false)}, {Name: "moved", Scenario: at("montreal", true)}},
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

// datagramsRow loads half of a link: Linux emulated on a shared core takes no more.
func datagramsRow() Row {
	return Row{
		Name: "udp", Title: "256 MiB with 25 Mbit/s of UDP through the switch",
		Variants: []Variant{{Name: "godwit", Scenario: fill(twoSites, sites{Name: "udp", Client: "sanjose", Site: "montreal", Flow: "udp", Options: "rate: 25mbit", Move: true})}},
		Measures: []Measure{
			ofFlow("lost", "datagrams", "udp", "records_lost", func(t report.Traffic) *float64 { return scaled(t.RecordsLost, 1) }),
			dropped, networkDowntime,
		},
		Aims: []Aim{{Variant: "godwit", Measure: "lost", AtMost: 0}, {Variant: "godwit", Measure: "dropped", AtMost: 0}},
	}
}

// followRow times how long connections take to follow, against a limit in ms: 2 RTT +
// 50 ms for one, 3 RTT + 100 ms for a hundred (an RTT is 20 ms here).
func followRow(connections int, limit float64) Row {
	name := fmt.Sprintf("follow-%d", connections)
	options := fmt.Sprintf("every: 100ms, connections: %d", connections)
	return Row{
		Name: name, Title: fmt.Sprintf("%d connections beside the ticks: from TARGET_RESUME until all have a subflow on the next address", connections),
		Variants: []Variant{{Name: "godwit", Scenario: fill(twoSites, sites{Name: name, Client: "internet", Site: "montreal", Flow: "requests", Options: options, Move: true})}},
		Measures: []Measure{followed, moved, vmDowntime},
		Aims: []Aim{
			{Variant: "godwit", Measure: "followed", AtMost: limit},
			{Variant: "godwit", Measure: "moved", AtLeast: float64(connections + 1), AtMost: float64(connections + 1)},
		},
	}
}

// crowdRow times how long very many connections take to follow, against the time in which
// the same guest accepted as many fresh ones, just before. The guest needs a MiB for four
// connections. Few of them have something to say meanwhile, nor have the ticks: a stream of
// 100 a second takes a third of an emulated guest.
func crowdRow(connections int, memory string) Row {
	name := fmt.Sprintf("follow-%d", connections)
	options := fmt.Sprintf("every: 10m, connections: %d", connections)
	return Row{
		Name: name, Title: fmt.Sprintf("%d connections to a guest of %s, until all have a subflow on the next address, against as many fresh ones", connections, memory),
		Variants: []Variant{{Name: "godwit", Scenario: fill(twoSites, sites{Name: name, Client: "internet", Site: "montreal", Flow: "requests", Options: options, Memory: memory, Every: "100ms", Timeout: "4m", Move: true})}},
		Measures: []Measure{followed, accepted("requests"), per("followed/accepted", followed, accepted("requests")), moved, vmDowntime},
		Aims: []Aim{
			{Variant: "godwit", Measure: "followed/accepted", AtMost: 3},
			{Variant: "godwit", Measure: "moved", AtLeast: float64(connections + 1), AtMost: float64(connections + 1)},
		},
	}
}

// paperSites is the network of Le & Nahum: Table I's RTTs (San Jose–Montreal 71 ms,
// Dallas in the middle is not needed), half of each on either side, and §V-A's links.
const paperSites = `name: paper
sites:
  - {name: montreal, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: public, rate: 300mbit, delay: 17.75ms, loss: 0.01%}]}
  - {name: sanjose, guest_net: {v4: 10.2.1.0/24}, uplinks: [{name: public, rate: 300mbit, delay: 17.75ms, loss: 0.01%}]}
clients:
  - {name: phone, at: sanjose}
guests:
  - {name: web, site: montreal, memory: 256MiB}
traffic:
  - {name: download, client: phone, guest: web, kind: download}
steps:
  - {at: 8s, migrate: {guest: web, to: sanjose, network: {{.Network}}}}
end: {after_last_migration: 12s, timeout: 180s}
expect:
  - {connections: survive}
  - {leftovers: none}
`

// paperRow holds a connection that moves against one that the tunnel carries for good,
// as Le & Nahum do (§V: 12 times the throughput and 1/284 of the RTT at San Jose).
func paperRow() Row {
	of := func(network string) string { return fill(paperSites, struct{ Network string }{network}) }
	return Row{
		Name: "paper", Title: "Le & Nahum's move to San Jose, RTT 71 ms, 300 Mbit/s, 0.01 % loss; they saw the tunnel at × 0.083 of the throughput and × 284 of the RTT",
		Variants: []Variant{{Name: "mptcp", Scenario: of("mptcp")}, {Name: "tunnel", Scenario: of("tunnel")}},
		Measures: []Measure{
			settledOf("throughput", "Mbit/s", "download", func(t report.Traffic) report.Windows { return t.Mbps }),
			settledOf("RTT", "ms", "download", func(t report.Traffic) report.Windows { return t.RTTMS }),
			networkDowntime,
		},
	}
}
