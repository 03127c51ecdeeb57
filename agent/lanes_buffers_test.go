package agent

import (
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/agent/peer"
	"godwit/agent/record"
	"godwit/migration"
)

// TestNoteBuffers: what a kernel's limits slow down, and nobody may change, is said with what to do.
func TestNoteBuffers(t *testing.T) {
	const mbit, mib = 1_000_000, 1 << 20
	for name, c := range map[string]struct {
		connection
		limit  int64
		which  string
		bytes  int64
		larger bool
		words  []string
	}{
		"the agent sets it":      {connection{"a-b", 1000 * mbit, 80 * time.Millisecond, 1, true}, 0, "wmem", 4 * mib, true, nil},
		"it may not":             {connection{"a-b", 1000 * mbit, 80 * time.Millisecond, 1, true}, 0, "wmem", 4 * mib, false, []string{"path a-b", "host rome", "419 of 1000 Mbit/s", "RTT of 80ms", "CAP_NET_ADMIN", "net.ipv4.tcp_wmem there to 30000000"}},
		"nor here":               {connection{"a-b", 1000 * mbit, 80 * time.Millisecond, 1, true}, 0, "rmem", 3 * mib, false, []string{"315 of 1000 Mbit/s", "net.ipv4.tcp_rmem there to 40000000"}},
		"nor need it":            {connection{"a-b", 400 * mbit, 80 * time.Millisecond, 1, true}, 0, "wmem", 4 * mib, false, nil},
		"a limit needs no more":  {connection{"a-b", 1000 * mbit, 80 * time.Millisecond, 1, true}, 100 * mbit, "wmem", 4 * mib, false, nil},
		"no rate is known":       {connection{"a-b", 0, 80 * time.Millisecond, 1, true}, 0, "wmem", 4 * mib, true, []string{"419 of 1000 Mbit/s", "configure them, or raise", "to 30000000"}},
		"nor matters":            {connection{"a-b", 0, 10 * time.Millisecond, 1, true}, 0, "wmem", 4 * mib, true, nil},
		"QEMU's own":             {connection{"mptcp", 1000 * mbit, 80 * time.Millisecond, 2, false}, 0, "wmem", 8 * mib, true, []string{"path mptcp", "839 of 1000 Mbit/s", "QEMU", "to 15000000"}},
		"the host does not say":  {connection{"a-b", 1000 * mbit, 80 * time.Millisecond, 1, true}, 0, "rmem", 0, false, nil},
		"the RTT is not known":   {connection{"a-b", 1000 * mbit, 0, 1, true}, 0, "rmem", mib, false, nil},
		"the host says nonsense": {connection{"a-b", 1000 * mbit, 80 * time.Millisecond, 1, true}, 0, "rmem", -1, false, nil},
	} {
		text := c.slowed(c.limit, "rome", c.which, c.bytes, c.larger)
		if (text == "") != (c.words == nil) || strings.Contains(text, "\n") {
			t.Errorf("%s: %q", name, text)
		}
		for _, word := range c.words {
			if !strings.Contains(text, word) {
				t.Errorf("%s: %q, want %q", name, text, word)
			}
		}
	}
}

// TestConnections: MPTCP needs what all its paths carry over the longest of them.
func TestConnections(t *testing.T) {
	paths := []peer.Path{{Name: "a", Rate: 300}, {Name: "b", Rate: 200}}
	trips := []time.Duration{10, 40}
	each := []connection{{"a", 300, 10, 1, true}, {"b", 200, 40, 1, true}}
	for transfer, want := range map[string][]connection{
		"lanes": each, "qemu-multifd": each,
		"mptcp":      {{"mptcp", 500, 40, 2, true}},
		"qemu-mptcp": {{"mptcp", 500, 40, 2, false}},
	} {
		if got := connections(migration.Plan{Transfer: transfer}, paths, trips); !slices.Equal(got, want) {
			t.Errorf("%s: %+v, want %+v", transfer, got, want)
		}
	}
	paths[1].Rate = 0
	if got := connections(migration.Plan{Transfer: "mptcp"}, paths, trips); got[0].rate != 0 {
		t.Errorf("one path's rate is not known, and that of both is %d", got[0].rate)
	}
}

// TestCheckSaysBuffers: the destination's answer in check brings what its kernel does; the source
// settles the window of MPTCP, and notes once what is too little.
func TestCheckSaysBuffers(t *testing.T) {
	m := &outgoing{
		plan: migration.Plan{From: "paris", To: "rome", Transfer: "mptcp"}, rec: record.New("paris", migration.Plan{}, time.Now()),
		work: &sourceWork{accepted: Acceptance{Buffers: &peer.Buffers{Receive: 1 << 20}}},
	}
	all := []connection{{"mptcp", 1e9, 100 * time.Millisecond, 2, true}}
	m.noteBuffers(all)
	m.noteBuffers(all)
	if want := peer.MultipathWindow(125e6, 100*time.Millisecond, 1<<20); m.work.window != want || want != 256<<10 {
		t.Errorf("a window of %d bytes, want %d", m.work.window, want)
	}
	if notes := m.rec.Snapshot().Notes; !slices.ContainsFunc(notes, func(n string) bool { return strings.Contains(n, "host rome carry 84 of 1000 Mbit/s") }) || len(notes) > 2 {
		t.Errorf("notes: %q", notes)
	}
	m.work.accepted.Buffers = nil // an older agent
	m.noteBuffers([]connection{{"a-b", 0, 0, 1, true}})
	for _, larger := range []bool{true, false} {
		m.work.accepted.Buffers = &peer.Buffers{Receive: 64 << 20, Larger: larger}
		m.noteBuffers(all)
		if want := peer.Window(125e6, 100*time.Millisecond); m.work.window < want == larger {
			t.Errorf("larger ones are given: %v; a window of %d bytes, and the way needs %d", larger, m.work.window, want)
		}
	}
}
