// Package random makes scenarios by chance and judges their runs: what nobody thought of
// combining is where a system breaks. Scenario gives the text of a scenario file from a
// seed, always the same; Judge says what no run may do, whatever happens in it.
package random

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Scenario is the file of seed. It can be run here: memory of all guests together stays
// below 1 GiB, and no run takes longer than its timeout of ten minutes.
func Scenario(seed uint64) []byte { return []byte(made(seed).text.String()) }

// made is the maker of seed when it has written all of its scenario.
func made(seed uint64) *maker {
	m := &maker{Rand: rand.New(rand.NewPCG(seed, 0x72616e646f6d))} //nolint:gosec // to be repeated, not to be secret
	m.put("name: random %d", seed)
	m.sites()
	m.clients()
	m.guests()
	m.traffic()
	m.steps()
	m.put("end: {after_last_migration: %ds, timeout: 600s}", lingers+2*((m.away+999)/1000))
	m.expect()
	return m
}

// silence is the longest for which a guest's next address may answer nobody once the handover is done, ms: for
// as long as a step has packets vanish, and what a slow guest on a busy machine and a full link take.
func (m *maker) silence() float64 { return float64(m.away) + silentMost }

// silentMost is that of a scenario in which nothing vanishes.
const silentMost = 2000

// maker writes one scenario, and keeps what later parts need to know of earlier ones.
type maker struct {
	*rand.Rand
	text strings.Builder

	families []string // v4, v6: alike at all sites
	places   []site
	people   []client
	vms      []guest

	lossy     bool // a link may lose packets
	disturbed bool // a migration may end otherwise than completed
	hurt      bool // a packet may be dropped by what a step did
	away      int  // the longest time for which a step has packets vanish, ms
}

// lingers is how long a run goes on after the last migration, s. A connection whose packets vanished is tried again
// after twice the time of the last try each time (RFC 6298 §5.5), so that it is silent for as long again as they did: a
// run whose links were cut at its end goes on for longer by twice that.
const lingers = 7

type site struct {
	name    string
	hosts   []string
	uplinks []string
	slowest int // Mbit/s of its slowest uplink
	far     int // one way of its longest uplink, ms
}

type client struct {
	name, at string
	follows  bool // it can be taken elsewhere, and its connections live
}

type guest struct {
	name, host string
	busy       bool // it, or what its clients send, writes to its memory
}

func (m *maker) put(format string, args ...any) { fmt.Fprintf(&m.text, format+"\n", args...) }

// chance is true in share of all cases.
func (m *maker) chance(share float64) bool { return m.Float64() < share }

func pick[T any](m *maker, from ...T) T { return from[m.IntN(len(from))] }

func (m *maker) sites() {
	m.families = pick(m, []string{"v4"}, []string{"v4"}, []string{"v4"}, []string{"v4", "v6"}, []string{"v6"})
	m.put("sites:")
	for i, name := range []string{"north", "south", "west"}[:pick(m, 2, 2, 3)] {
		s := site{name: name, hosts: []string{name}}
		var nets []string
		for _, f := range m.families {
			nets = append(nets, f+": "+map[string]string{"v4": fmt.Sprintf("10.%d.1.0/24", i+1), "v6": fmt.Sprintf("fd00:%d:1::/64", i+1)}[f])
		}
		hosts := ""
		if m.chance(0.15) {
			s.hosts = []string{name + "-1", name + "-2"}
			hosts = "\n    hosts: 2"
		}
		m.put("  - name: %s\n    guest_net: {%s}%s\n    uplinks:", name, strings.Join(nets, ", "), hosts)
		for k := range pick(m, 1, 1, 2, 2, 3) {
			m.uplink(&s, k)
		}
		m.places = append(m.places, s)
	}
}

func (m *maker) uplink(s *site, k int) {
	name := []string{"fibre", "cable", "radio"}[k]
	s.uplinks = append(s.uplinks, name)
	rate, delay := pick(m, 20, 50, 100, 100, 300, 1000), pick(m, 0, 1, 5, 10, 25, 40, 75)
	keys := []string{"name: " + name, fmt.Sprintf("rate: %dmbit", rate), fmt.Sprintf("delay: %dms", delay)}
	s.far = max(s.far, delay)
	if k > 0 {
		keys = append(keys, "carries: "+pick(m, "migration", "migration", "both", "guest"))
	}
	if s.slowest == 0 || rate < s.slowest {
		s.slowest = rate
	}
	if m.chance(0.1) {
		keys = append(keys, "loss: "+pick(m, "0.01%", "0.1%", "0.5%"))
		m.lossy = true
	}
	if m.chance(0.2) {
		keys = append(keys, fmt.Sprintf("mtu: %d", pick(m, 1280, 1400, 9000)))
	}
	if m.chance(0.1) {
		keys = append(keys, "queue: "+pick(m, "64KiB", "256KiB", "1MiB"))
	}
	m.put("      - {%s}", strings.Join(keys, ", "))
}

func (m *maker) clients() {
	m.put("clients:")
	for _, name := range []string{"phone", "laptop", "desk"}[:1+m.IntN(3)] {
		at := "internet"
		if m.chance(0.4) {
			at = pick(m, m.places...).name
		}
		kind, nat := pick(m, "full", "full", "full", "backup", "single", "off"), m.chance(0.15)
		keys := []string{"name: " + name, "at: " + at, "mptcp: " + kind}
		if nat {
			keys = append(keys, "nat: true")
		}
		if m.chance(0.3) {
			keys = append(keys, fmt.Sprintf("uplinks: %d", 2+m.IntN(2)))
		}
		accepts := !m.chance(0.07)
		if !accepts {
			keys = append(keys, "add_addr_accepted: 0")
		}
		m.people = append(m.people, client{name: name, at: at, follows: (kind == "full" || kind == "backup") && !nat && accepts})
		m.put("  - {%s}", strings.Join(keys, ", "))
	}
}

func (m *maker) guests() {
	m.put("guests:")
	for _, name := range []string{"web", "db"}[:pick(m, 1, 1, 1, 2)] {
		g := guest{name: name, host: pick(m, pick(m, m.places...).hosts...)}
		memory := pick(m, 128, 160, 192, 256) // MiB
		keys := []string{"name: " + name, "site: " + g.host, fmt.Sprintf("memory: %dMiB", memory)}
		if m.chance(0.3) {
			keys = append(keys, "vcpus: 2")
		}
		if m.chance(0.15) {
			keys = append(keys, "network: "+pick(m, "tunnel", "drain", "mptcp"))
		}
		var run []string
		if g.busy = memory > 128 && m.chance(0.5); g.busy {
			run = append(run, fmt.Sprintf(`"dirty size=%dMiB hot=%d%% rate=%s data=%s"`, 16+m.IntN(memory-144), pick(m, 10, 50, 100),
				pick(m, "256KiB/s", "1MiB/s", "4MiB/s"), pick(m, "text", "random", "touch")))
		}
		if m.chance(0.15) {
			keys = append(keys, "disk: "+pick(m, "64MiB", "128MiB"))
			run = append(run, pick(m, `"disk write=16MiB"`, `"disk rate=512KiB/s area=16MiB"`))
		}
		if m.chance(0.1) {
			run = append(run, "cpu")
		}
		if len(run) > 0 {
			keys = append(keys, "run: ["+strings.Join(run, ", ")+"]")
		}
		m.vms = append(m.vms, g)
		m.put("  - {%s}", strings.Join(keys, ", "))
	}
}

// mostUDP is the most that is sent to a guest as datagrams, kbit/s: some 800 a second.
const mostUDP = 8000

// leastUDP is what a flow of them has of that at least, kbit/s, as there may be four.
const leastUDP = mostUDP / 8

func (m *maker) traffic() {
	slowest := m.places[0].slowest
	for _, s := range m.places {
		slowest = min(slowest, s.slowest)
	}
	m.put("traffic:")
	datagrams := map[string]int{} // to each guest, kbit/s
	for i := range 1 + m.IntN(4) {
		to := m.IntN(len(m.vms))
		kind := pick(m, "ticks", "ticks", "download", "upload", "requests", "udp", "iperf3")
		keys := []string{fmt.Sprintf("name: %s-%d", kind, i+1), "client: " + pick(m, m.people...).name,
			"guest: " + m.vms[to].name, "kind: " + kind}
		switch bulk := kind == "download" || kind == "upload" || kind == "iperf3"; {
		case kind == "udp": // no more than an emulated guest takes
			rate := min(slowest*pick(m, 20, 50, 100), max(mostUDP-datagrams[m.vms[to].name], leastUDP))
			datagrams[m.vms[to].name] += rate
			keys = append(keys, fmt.Sprintf("rate: %dkbit", rate))
		case bulk && m.chance(0.5):
			keys = append(keys, fmt.Sprintf("rate: %dkbit", slowest*pick(m, 20, 50, 100)))
		case bulk:
			m.vms[to].busy = true
		default:
			keys = append(keys, "every: "+pick(m, "10ms", "20ms", "100ms"))
		}
		if m.chance(0.2) {
			keys = append(keys, fmt.Sprintf("connections: %d", pick(m, 2, 5, 20)))
		}
		if len(m.families) > 1 {
			keys = append(keys, "family: "+pick(m, m.families...))
		}
		if m.chance(0.1) {
			keys = append(keys, "start: 4s")
		}
		m.put("  - {%s}", strings.Join(keys, ", "))
	}
}

func (m *maker) expect() {
	m.put("expect:\n  - {leftovers: none}\n  - {connections: survive}")
	if !m.disturbed {
		m.put("  - {migrations: completed}")
	}
	if !m.lossy && !m.hurt {
		m.put("  - {dropped_packets: 0}")
	}
}
