package bench

// Memory is how fast a guest's memory gets there: our data path (L) against QEMU's own, pre-copy over TCP on the best
// path (P), over MPTCP (M), multifd with zstd (Z), xbzrle (X) and post-copy over TCP (C), which is no way of this
// agent's: the lab performs it. No guest is throttled. Least is what the guest's memory takes at the least: each
// content once, what the destination has of its image, or of an earlier visit, not at all, the rest by zstd at its best
// (lab, leastBytes), and least time what all paths together take for that.
func Memory() Table {
	return Table{Name: "memory", Rows: []Row{
		memoryRow("idle", "512 MiB idle, 100 Mbit/s, RTT 50 ms", situation{Memory: "512MiB", Rate: "100mbit", Delay: "12.5ms"},
			Aim{Variant: "L", Measure: "memory", Against: "P", AtMost: 0.5}, Aim{Variant: "L", Measure: "VM downtime", AtMost: 100}, Aim{Variant: "L", Measure: "wire/least", AtMost: 1.15},
			Aim{Variant: "L", Measure: "memory/least", AtMost: 1.15}, Aim{Variant: "L", Measure: "memory", Against: "Z", AtMost: 0.9}),
		memoryRow("churn", "512 MiB, text rewritten, 300 Mbit/s, RTT 20 ms", situation{Memory: "512MiB", Rate: "300mbit", Delay: "5ms",
			Run: "dirty size=192MiB hot=50% rate=8MiB/s data=text"},
			Aim{Variant: "L", Measure: "wire", Against: Best, AtMost: 0.5}, Aim{Variant: "L", Measure: "wire/least", AtMost: 1.15}),
		memoryRow("touch", "256 MiB, one byte per page of 96 MiB, 50 Mbit/s, RTT 10 ms", situation{Memory: "256MiB", Rate: "50mbit", Delay: "2.5ms",
			Run: "dirty size=96MiB rate=16MiB/s data=touch"},
			Aim{Variant: "L", Measure: "memory", Against: "X", AtMost: 0.6}, Aim{Variant: "L", Measure: "wire", Against: "X", AtMost: 0.6}),
		memoryRow("hot", "512 MiB, 64 MiB rewritten with random bytes, 50 Mbit/s, RTT 100 ms", situation{Memory: "512MiB", Rate: "50mbit", Delay: "25ms",
			Run: "dirty size=64MiB hot=100% rate=32MiB/s"},
			Aim{Variant: "L", Measure: "VM downtime", AtMost: 200}, Aim{Variant: "L", Measure: "stalls", Against: "C", AtMost: 0.5}),
		pathsRow("paths", "100 Mbit/s RTT 10 ms + 30 Mbit/s RTT 80 ms", situation{Rate: "100mbit", Delay: "2.5ms", SecondRate: "30mbit", SecondDelay: "20ms"},
			Aim{Variant: "L", Measure: "memory", Against: "P", AtMost: 0.7}),
		pathsRow("paths-far", "30 Mbit/s RTT 10 ms + 100 Mbit/s RTT 150 ms", situation{Rate: "30mbit", Delay: "2.5ms", SecondRate: "100mbit", SecondDelay: "37.5ms"}),
		pathsRow("paths-cut", "100 Mbit/s RTT 10 ms + 30 Mbit/s RTT 80 ms, which is cut for good 8 s after the copy began, half-way of ours",
			situation{Rate: "100mbit", Delay: "2.5ms", SecondRate: "30mbit", SecondDelay: "20ms", Cut: "8s"},
			Aim{Variant: "L", Measure: "memory", Against: "P", AtMost: 1}),
		// As hot as P can follow, as it could in the paper's 0.4 (Chaufournier, 4.3 and 4.4: by MPTCP half of the time, of
		// which skipping hot pages takes a fifth).
		sharesRow("equal", "512 MiB, 64 MiB rewritten with random bytes at 4 MiB/s, twice 100 Mbit/s RTT 20 ms", situation{Memory: "512MiB",
			Run: "dirty size=64MiB hot=100% rate=4MiB/s", Rate: "100mbit", Delay: "5ms", SecondRate: "100mbit", SecondDelay: "5ms"},
			Aim{Variant: "L", Measure: "memory", Against: "P", AtMost: 0.2}),
		memoryRow("return", "512 MiB, there, work, and back: the way back, 20 Mbit/s, RTT 60 ms", situation{Memory: "512MiB", Rate: "20mbit", Delay: "15ms",
			Run: "dirty size=64MiB hot=25% rate=256KiB/s data=text", Return: true},
			Aim{Variant: "L", Measure: "wire", Against: "P", AtMost: 0.3}, Aim{Variant: "L", Measure: "wire/least", AtMost: 1.15}),
		memoryRow("control", "256 MiB idle, 1 Gbit/s, no delay: no more than 5 % slower than P", situation{Memory: "256MiB", Rate: "1gbit", Delay: "0ms"},
			Aim{Variant: "L", Measure: "memory", Against: "P", AtMost: 1.05}),
		redisRow(), nginxRow(),
	}}
}

// situation is a guest, its load and the links.
type situation struct {
	Name, Memory, Run       string
	Image                   string   // "": tiny
	Runs                    []string // more lines, of several words
	Rate, Delay             string   // of each site's link; a path has twice the sum of two delays as RTT
	Loss                    string   // of each site's link
	Fetch                   string   // a command of the client's, beside the ticks
	SecondRate, SecondDelay string   // of a second uplink, that carries migrations only
	Cut                     string   // how long after the copy's beginning the second is cut, for good
	Return                  bool     // back again; the numbers are of the way back
	Transfer                string
	Plain                   bool
}

const memoryScenario = `name: {{.Name}}-{{or .Transfer "plain"}}
sites:
{{- range $i, $site := $.Sites}}
  - name: {{$site}}
    guest_net: {v4: 10.{{$i}}.1.0/24}
    uplinks:
      - {name: first, carries: both, rate: {{$.Rate}}, delay: {{$.Delay}}{{if $.Loss}}, loss: {{$.Loss}}{{end}}}
{{- if $.SecondRate}}
      - {name: second, carries: migration, rate: {{$.SecondRate}}, delay: {{$.SecondDelay}}}
{{- end}}
{{- end}}
clients:
  - {name: phone, at: internet}
guests:
  - name: web
    site: montreal
    memory: {{.Memory}}
{{- if .Image}}
    image: {{.Image}}
{{- end}}
{{- if .Run}}
    run: ["{{.Run}}"]
{{- else if .Runs}}
    run:
{{- range .Runs}}
      - |
        {{.}}
{{- end}}
{{- end}}
traffic:
  - {name: ticks, client: phone, guest: web, kind: ticks, every: 10ms}
{{- if .Fetch}}
  - {name: fetch, client: phone, guest: web, kind: exec, command: {{printf "%q" .Fetch}}}
{{- end}}
steps:
  - {at: 3s, migrate: {guest: web, to: sanjose{{if .Transfer}}, transfer: {{.Transfer}}{{end}}}}
{{- if .Cut}}
  - {at: {guest: web, phase: copy, plus: {{.Cut}}}, cut: {site: montreal, uplink: second}}
{{- end}}
{{- if .Return}}
  - {at: {guest: web, phase: settle, plus: 8s}, migrate: {guest: web, to: montreal, transfer: {{.Transfer}}}}
{{- end}}
end: {after_last_migration: 2s, timeout: {{if .Return}}1500s{{else}}600s{{end}}}
expect:
  - {migrations: completed}
{{- if not .Plain}}
  - {connections: survive}
{{- end}}
  - {leftovers: none}
`

// Sites are the two of every situation.
func (situation) Sites() map[int]string { return map[int]string{1: "montreal", 2: "sanjose"} }

// transfers by the letters of the papers' tables; the first is what others are held
// against.
var transfers = []struct{ letter, transfer string }{
	{"P", "qemu-tcp"}, {"M", "qemu-mptcp"}, {"Z", "qemu-multifd"}, {"X", "qemu-xbzrle"}, {"C", ""}, {"L", "lanes"},
}

func memoryRow(name, title string, s situation, aims ...Aim) Row {
	l := s.links()
	row := Row{Name: name, Title: title, Aims: aims, Measures: []Measure{
		memoryTime, leastTime(l), overLeastTime(l), vmDowntime, wireMegabytes, leastMegabytes, overLeast, cpuSeconds, rounds, stalls, slowdown,
	}}
	s.Name = name
	for _, t := range transfers {
		s.Transfer, s.Plain = t.transfer, t.transfer == ""
		if s.Plain && s.Return { // the guest is in nobody's care then
			continue
		}
		row.Variants = append(row.Variants, Variant{Name: t.letter, Scenario: fill(memoryScenario, s), Plain: s.Plain})
	}
	return row
}

// sharesRow tells how much of the links was used, too.
func sharesRow(name, title string, s situation, aims ...Aim) Row {
	row := memoryRow(name, title, s, aims...)
	row.Measures = append(row.Measures, linkShare(s.links()), sendingShare(s.links()))
	return row
}

// pathsRow is a guest of mixed load over two links of a site, which are to be full.
func pathsRow(name, title string, s situation, aims ...Aim) Row {
	s.Memory, s.Run = "512MiB", "dirty size=128MiB hot=25% rate=2MiB/s"
	row := sharesRow(name, "512 MiB, mixed, "+title, s, append(aims, Aim{Variant: "L", Measure: "link", AtLeast: 97}, Aim{Variant: "L", Measure: "aborts", Each: true})...)
	row.Measures = append(row.Measures, aborts)
	return row
}
