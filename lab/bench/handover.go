package bench

import (
	"cmp"
	"fmt"
	"strings"
)

// Handover is what clients feel of a move.
func Handover() Table {
	return Table{Name: "handover", Rows: []Row{
		ticksRow("network downtime against 1.5 RTT + 60 ms; the service gap of MPTCP ticks against the same run's network downtime + 2 RTT, and against its VM downtime + RTT + 20 ms",
			sites{Name: "idle"}, atMost(networkDowntime, 1.5*rtt+60), atMost(gapOverNetwork("ticks"), 2*rtt), atMost(gapOverVM("ticks"), rtt+20)),
		ticksRow("a client without MPTCP; the service gap of its ticks against the same run's VM downtime + RTT + tunnel RTT (20 ms) + 20 ms",
			sites{Name: "tcp", MPTCP: "off"}, atMost(gapOverVM("ticks"), rtt+rttTunnel+20)),
		lossRow("an upload at full rate (Le & Nahum, V-D, lost up to 35 %)", sites{Name: "upload", Flow: "upload", Options: lateStart}),
		lossRow("a download at full rate (Le & Nahum, V-D, lost up to 1 %)", sites{Name: "download", Flow: "download", Options: lateStart}),
		lossRow("10 Mbit/s of UDP, half of the link (an emulated guest takes a thousand datagrams a second, not many more),",
			sites{Name: "udp", Flow: "udp", Options: "rate: 10mbit", Mbps: 20}),
		pingRow(),
		freshRow("download"), freshRow("upload"),
		followRow(1, "2 r + 50 ms", 2*rttAround+50), followRow(100, "3 r + 100 ms", 3*rttAround+100),
		crowdRow(1000, "512MiB"), crowdRow(10000, "5GiB"),
		paperRow("paper", "San Jose", "12 × the throughput and 1/284 of the RTT",
			Aim{Variant: "mptcp", Measure: "throughput", Against: "tunnel", AtLeast: 12}, Aim{Variant: "tunnel", Measure: "RTT", Against: "mptcp", AtLeast: 284}),
		paperRow("paper-dallas", "Dallas", "1.72 × the throughput and 1/2.75 of the RTT (RTTs of 114 and 43 ms allow 1/2.65)",
			Aim{Variant: "mptcp", Measure: "throughput", Against: "tunnel", AtLeast: 1.72}),
	}}
}

const twoSites = `name: {{.Name}}
sites:
  - {name: montreal, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: public, rate: {{or .Mbps 350}}mbit, delay: 5ms}]}
  - {name: sanjose, guest_net: {v4: 10.2.1.0/24}, uplinks: [{name: public, rate: {{or .Mbps 350}}mbit, delay: 5ms}]}
clients:
  - {name: phone, at: {{or .Client "sanjose"}}, mptcp: {{or .MPTCP "full"}}}
guests:
  - {name: web, site: {{if .Stays}}sanjose{{else}}montreal{{end}}, memory: {{or .Memory "256MiB"}}}
traffic:
  - {name: ticks, client: phone, guest: web, kind: ticks, every: {{or .Every "10ms"}}}
{{- if .Flow}}
  - {name: {{.Flow}}, client: phone, guest: web, kind: {{.Flow}}{{if .Options}}, {{.Options}}{{end}}}
{{- end}}
{{- if not .Stays}}
steps:
  - {at: 6s, migrate: {guest: web, to: sanjose}}
{{- end}}
end: {after_last_migration: 9s, timeout: {{or .Timeout "120s"}}}
expect:
{{- if not .Stays}}
  - {migrations: completed}
{{- end}}
  - {connections: survive}
  - {leftovers: none}
`

// sites fills twoSites, which says what "" stands for.
type sites struct {
	Name, Client, MPTCP, Memory   string
	Flow, Options, Every, Timeout string
	Mbps                          int  // of each uplink; 0 is the usual, too
	Stays                         bool // the guest has always been where it goes otherwise
}

// Round trips of twoSites, ms.
const (
	rtt       = 20  // client in San Jose, guest in Montreal
	rttTunnel = rtt // between the two sites
	rttAround = 30  // client on the internet, to Montreal, through the tunnel, to the guest in San Jose
)

// moving is the variant of a row whose aims are numbers, not other variants.
func moving(s sites) []Variant { return []Variant{{Name: "godwit", Scenario: fill(twoSites, s)}} }

func atMost(m Measure, limit float64) Aim {
	return Aim{Variant: "godwit", Measure: m.Name, AtMost: limit}
}

// none are to be seen in any run.
func none(m Measure) Aim { return Aim{Variant: "godwit", Measure: m.Name, Each: true} }

// ticksRow is a guest that does nothing but tick.
func ticksRow(title string, s sites, aims ...Aim) Row {
	return Row{
		Name: s.Name, Title: "256 MiB, idle, 350 Mbit/s, RTT 20 ms: " + title + "; packets dropped and records damaged against none",
		Variants: moving(s),
		Measures: []Measure{networkDowntime, vmDowntime, serviceGap("ticks"), gapOverNetwork("ticks"), gapOverVM("ticks"), dropped, damaged("ticks")},
		Aims:     append(aims, none(dropped), none(damaged("ticks"))),
	}
}

// lateStart has a flow at full rate begin just before the move: of one that goes on all the time packets are on their
// way at every reading of edges and guest, and as many lost ones would not be seen.
const lateStart = "start: 5.5s"

// lossRow has a flow that goes on through the switch.
func lossRow(title string, s sites) Row {
	return Row{
		Name:     s.Name,
		Title:    fmt.Sprintf("256 MiB, %d Mbit/s, RTT 20 ms, with %s through the switch: packets dropped and records damaged against none", cmp.Or(s.Mbps, 350), title),
		Variants: moving(s),
		Measures: []Measure{dropped, damaged(s.Flow), linkDrops, networkDowntime, vmDowntime},
		Aims:     []Aim{none(dropped), none(damaged(s.Flow))},
	}
}

func pingRow() Row {
	row := lossRow("a datagram every 1 ms", sites{Name: "ping", Flow: "udp", Options: "every: 1ms"})
	row.Title += "; their service gap against the same run's VM downtime + RTT + tunnel RTT (20 ms) + 20 ms"
	row.Measures = append(row.Measures, serviceGap("udp"), gapOverVM("udp"))
	row.Aims = append(row.Aims, atMost(gapOverVM("udp"), rtt+rttTunnel+20))
	return row
}

// freshRow holds a connection that moved against one that was opened to a guest which
// has always been there.
func freshRow(flow string) Row {
	at := func(stays bool) string {
		return fill(twoSites, sites{Name: "fresh-" + flow, Client: "internet", Flow: flow, Stays: stays})
	}
	return Row{
		Name: "fresh-" + flow, Title: "a " + flow + " that moved, in the 5 s from 2 s after the handover, against one to a guest that was always there: throughput and RTT within 10 %",
		Variants: []Variant{{Name: "fresh", Scenario: at(true)}, {Name: "moved", Scenario: at(false)}},
		Measures: settled(flow),
		Aims: []Aim{
			{Variant: "moved", Measure: "throughput", Against: "fresh", AtLeast: 0.9, AtMost: 1.1},
			{Variant: "moved", Measure: "RTT", Against: "fresh", AtLeast: 0.9, AtMost: 1.1},
		},
	}
}

// allMoved is the aim that so many connections of the guest followed in each run.
func allMoved(connections int) Aim {
	return Aim{Variant: "godwit", Measure: moved.Name, AtLeast: float64(connections), AtMost: float64(connections), Each: true}
}

// followRow times how long connections take to follow, the ticks among them, against a
// limit in ms, which is also given in words: r is rttAround.
func followRow(connections int, limit string, ms float64) Row {
	s := sites{Name: fmt.Sprintf("follow-%d", connections), Client: "internet"}
	if connections > 1 {
		s.Flow, s.Options = "requests", fmt.Sprintf("every: 100ms, connections: %d", connections-1)
	}
	return Row{
		Name:     s.Name,
		Title:    fmt.Sprintf("connections of the guest: %d; from TARGET_RESUME until all have a subflow on the next address, against %s (r: client → tunnel → guest and back, 30 ms)", connections, limit),
		Variants: moving(s),
		Measures: []Measure{followed, moved, vmDowntime},
		Aims:     []Aim{atMost(followed, ms), allMoved(connections)},
	}
}

// crowdRow times how long very many connections take to follow, against the time in which
// the same guest accepted as many fresh ones, just before. The guest needs a MiB for four
// connections. Few of them have something to say meanwhile, nor have the ticks: a stream of
// 100 a second takes a third of an emulated guest.
func crowdRow(connections int, memory string) Row {
	s := sites{Name: fmt.Sprintf("follow-%d", connections), Client: "internet", Memory: memory, Every: "100ms", Timeout: "4m",
		Flow: "requests", Options: fmt.Sprintf("every: 10m, connections: %d", connections)}
	fresh := accepted("requests")
	ratio := both("followed/accepted", "", followed, fresh, over)
	return Row{
		Name:     s.Name,
		Title:    fmt.Sprintf("%d connections to a guest of %s: from TARGET_RESUME until all have a subflow on the next address, against 3 × the time in which it accepted as many fresh ones", connections, memory),
		Variants: moving(s),
		Measures: []Measure{followed, fresh, ratio, moved, vmDowntime},
		Aims:     []Aim{atMost(ratio, 3), allMoved(connections + 1)},
	}
}

// paperSites is the network of Le & Nahum. Table I's RTTs are San Jose–Dallas 43 ms,
// Dallas–Montreal 43 ms, San Jose–Montreal 71 ms: the RTT of two sites is twice the sum
// of their uplinks' delays.
const paperSites = `name: {{.Name}}
sites:
  - {name: montreal, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: public, rate: 300mbit, delay: 17.75ms, loss: 0.01%}]}
  - {name: dallas, guest_net: {v4: 10.2.1.0/24}, uplinks: [{name: public, rate: 300mbit, delay: 3.75ms, loss: 0.01%}]}
  - {name: sanjose, guest_net: {v4: 10.3.1.0/24}, uplinks: [{name: public, rate: 300mbit, delay: 17.75ms, loss: 0.01%}]}
clients:
  - {name: phone, at: sanjose}
guests:
  - {name: web, site: montreal, memory: 256MiB}
traffic:
  - {name: download, client: phone, guest: web, kind: download}
steps:
  - {at: 8s, migrate: {guest: web, to: {{.To}}, network: {{.Network}}}}
end: {after_last_migration: 12s, timeout: 180s}
expect:
  - {migrations: completed}
  - {connections: survive}
  - {leftovers: none}
`

// paperRow holds a connection that moves against one that the tunnel carries for good, and
// both against what Le & Nahum saw (§V-B, Table II).
func paperRow(name, to, saw string, aims ...Aim) Row {
	of := func(network string) string {
		return fill(paperSites, map[string]string{"Name": name, "To": strings.ToLower(strings.ReplaceAll(to, " ", "")), "Network": network})
	}
	return Row{
		Name: name,
		Title: fmt.Sprintf("Le & Nahum's move from Montreal to %s, client in San Jose, a download (RTTs San Jose–Dallas 43 ms, San Jose–Montreal 71 ms, Dallas–Montreal 43 ms; "+
			"each uplink 300 Mbit/s, 0.01 %% loss): MPTCP against the tunnel for good, and both against their %s", to, saw),
		Variants: []Variant{{Name: "mptcp", Scenario: of("mptcp")}, {Name: "tunnel", Scenario: of("tunnel")}},
		Measures: append(settled("download"), networkDowntime),
		Aims:     aims,
	}
}
