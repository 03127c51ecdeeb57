package agent

import (
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/ends"
	"godwit/agent/peer"
	"godwit/agent/record"
	"godwit/agent/talk"
	"godwit/agent/ways"
	"godwit/migration"
)

// reflectTo answers each datagram at an address that comes from one of these, until the test ends.
func reflectTo(t *testing.T, at netip.AddrPort, from ...string) {
	t.Helper()
	reflectBy(t, at, func(who netip.AddrPort, answer func()) {
		if slices.Contains(from, who.Addr().String()) {
			answer()
		}
	})
}

const guests1, fast1, slow1, guests2, fast2, slow2 = "127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.1.1", "127.0.1.2", "127.0.1.3"

// fastAndSlow is a migration between hosts with an uplink for guests and a fast and a slow one for migrations each, of
// which those of rome answer whom they are to.
func fastAndSlow(t *testing.T, transfer string, fast, slow []string) (*outgoing, config.Neighbour) {
	t.Helper()
	uplinks := func(guests, fast, slow string) []config.Uplink {
		return []config.Uplink{
			{Name: "guests", Address: netip.MustParseAddr(guests), Carries: "guest"},
			{Name: "fast", Address: netip.MustParseAddr(fast), Carries: "migration", Rate: 100e6},
			{Name: "slow", Address: netip.MustParseAddr(slow), Carries: "migration", Rate: 50e6},
		}
	}
	m, n := budgeted(t, "precopy", 0, 0)
	m.a.config.Uplinks, n.Uplinks = uplinks(guests1, fast1, slow1), uplinks(guests2, fast2, slow2)
	port, err := ends.FreePort(netip.MustParseAddr(fast2))
	if err != nil {
		t.Fatal(err)
	}
	m.a.config.Port, m.a.config.Network.MTU, m.a.detours = port, 1400, detour.New("", config.Network{}, nil)
	reflectAfter(t, netip.AddrPortFrom(netip.MustParseAddr(guests2), port), 20*time.Millisecond)
	for addr, from := range map[string][]string{fast2: fast, slow2: slow} {
		reflectTo(t, netip.AddrPortFrom(netip.MustParseAddr(addr), port), from...)
	}
	m.work.accepted = talk.Acceptance{Token: make([]byte, 16), Probe: port}
	m.plan.Transfer, m.plan.Tunnel = transfer, "auto"
	return m, n
}

// TestPathsThatReachEachOther: uplinks that do not reach each other, though they would be paired by their rates, carry
// nothing where other pairs do, at either end and after an agent's restart, and that is said; those that answer come
// first, as a connection begins over the first. Those of an uplink by which nothing answers are tried on, but by QEMU,
// which all of its connections are lost with.
func TestPathsThatReachEachOther(t *testing.T) {
	both := []string{fast1, slow1}
	for _, c := range []struct {
		name       string
		fast, slow []string // who is answered there
		want, qemu string
	}{
		{"all", both, both, "fast-fast slow-slow", "fast-fast slow-slow"},
		{"crossed", []string{slow1}, []string{fast1}, "fast-slow slow-fast", "fast-slow slow-fast"},
		{"slow ones do not meet", both, []string{fast1}, "fast-fast fast-slow slow-fast", "fast-fast"},
		{"fast ones do not meet", []string{slow1}, both, "fast-slow slow-fast", "fast-slow slow-fast"},
		{"slow is down", []string{fast1}, []string{fast1}, "fast-fast slow-slow", "fast-fast"},
		{"fast is down there", nil, both, "slow-slow fast-fast", "fast-slow"},
		{"crossed, and fast is down", []string{slow1}, nil, "slow-fast fast-slow", "slow-fast"},
	} {
		for transfer, want := range map[string]string{"lanes": c.want, "mptcp": c.want, "qemu-multifd": c.qemu, "qemu-tcp": strings.Fields(c.qemu)[0]} {
			t.Run(c.name+" "+transfer, func(t *testing.T) {
				t.Parallel()
				m, n := fastAndSlow(t, transfer, c.fast, c.slow)
				if err := m.tryPaths(t.Context(), n); err != nil {
					t.Fatal(err)
				}
				paths := m.paths(n)
				if got := strings.Join(ways.Names(paths), " "); got != want {
					t.Errorf("memory goes over %s, want %s", got, want)
				}
				for k, p := range paths { // a silent one is taken to be as long as the longest that answers
					answers := slices.Contains(map[string][]string{fast2: c.fast, slow2: c.slow}[p.Remote.String()], p.Local.String())
					if trip := m.work.trips[k]; trip == 0 || trip == m.work.rtt || !answers && trip != slices.Max(m.work.trips) {
						t.Errorf("%s, which answers: %v: a round trip of %v, of %v", p.Name, answers, trip, m.work.trips)
					}
				}
				byRate := (&outgoing{a: m.a, plan: migration.Plan{Transfer: transfer}}).paths(n)
				notes := strings.Join(m.rec.Snapshot().Notes, "\n")
				if said := strings.Contains(notes, "memory goes over "+strings.Join(ways.Names(m.answering(paths)), ", ")+", as"); said != !slices.Equal(slices.Sorted(slices.Values(ways.Names(paths))), ways.Names(byRate)) {
					t.Errorf("notes: %s", notes)
				}
				m.plan.Paths = nil
				if m.choosePaths(n, m.work.answered); strings.Join(m.rec.Snapshot().Notes, "\n") != notes { // its next try
					t.Errorf("notes: %s, of two tries: %s", notes, m.rec.Snapshot().Notes)
				}
				answer := map[string]int64{"slow is down": 100e6, "fast is down there": 50e6, "crossed, and fast is down": 50e6}[c.name]
				if got := m.carried(n); m.plan.OwnPath() && answer > 0 && got != answer {
					t.Errorf("%d bit/s are foreseen, what answers carries %d", got, answer)
				}
				rome := bareAgent(t, &config.Config{Host: "rome", Uplinks: n.Uplinks, Peers: []config.Neighbour{{Host: "paris", Uplinks: m.a.config.Uplinks}}})
				told, err := json.Marshal(m.plan) // as the journal and the destination have it
				var plan migration.Plan
				if err := errors.Join(err, json.Unmarshal(told, &plan)); err != nil {
					t.Fatal(err)
				}
				if again := (&outgoing{a: m.a, plan: plan}).paths(n); !slices.Equal(again, paths) {
					t.Errorf("%v, and by the journal %v", paths, again)
				}
				there := (&incoming{a: rome, plan: plan}).paths()
				if !slices.EqualFunc(paths, there, func(a, b peer.Path) bool { return a.Local == b.Remote && a.Remote == b.Local }) {
					t.Errorf("%v here, and there %v", paths, there)
				}
			})
		}
	}
}

// TestCheckSaysBuffers: the destination's answer in check brings what its kernel does; the source
// settles the window of MPTCP, and notes once what is too little.
func TestCheckSaysBuffers(t *testing.T) {
	m := &outgoing{
		plan: migration.Plan{From: "paris", To: "rome", Transfer: "mptcp"}, rec: record.New("paris", migration.Plan{}, time.Now()),
		work: &sourceWork{accepted: talk.Acceptance{Buffers: &peer.Buffers{Receive: 1 << 20}}},
	}
	all := ways.Connections(m.plan, []peer.Path{{Name: "a-b", Rate: 5e8}, {Name: "c-d", Rate: 5e8}}, []time.Duration{100 * time.Millisecond, 100 * time.Millisecond})
	m.noteBuffers(all)
	m.noteBuffers(all)
	if want := peer.MultipathWindow(125e6, 100*time.Millisecond, 1<<20); m.work.window != want || want != 256<<10 {
		t.Errorf("a window of %d bytes, want %d", m.work.window, want)
	}
	if notes := m.rec.Snapshot().Notes; !slices.ContainsFunc(notes, func(n string) bool { return strings.Contains(n, "host rome carry 84 of 1000 Mbit/s") }) || len(notes) > 2 {
		t.Errorf("notes: %q", notes)
	}
	m.work.accepted.Buffers = nil // an older agent
	m.noteBuffers(ways.Connections(migration.Plan{Transfer: "lanes"}, []peer.Path{{Name: "a-b"}}, []time.Duration{0}))
	for _, larger := range []bool{true, false} {
		m.work.accepted.Buffers = &peer.Buffers{Receive: 64 << 20, Larger: larger}
		m.noteBuffers(all)
		if want := peer.Window(125e6, 100*time.Millisecond); m.work.window < want == larger {
			t.Errorf("larger ones are given: %v; a window of %d bytes, and the way needs %d", larger, m.work.window, want)
		}
	}
}
