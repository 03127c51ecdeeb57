package ways

import (
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/agent/peer"
	"godwit/migration"
)

// TestNoteBuffers: what a kernel's limits slow down, and nobody may change, is said with what to do.
func TestNoteBuffers(t *testing.T) {
	const mbit, mib = 1_000_000, 1 << 20
	for name, c := range map[string]struct {
		Connection
		limit  int64
		which  string
		bytes  int64
		larger bool
		words  []string
	}{
		"the agent sets it":      {Connection{"a-b", 1000 * mbit, 80 * time.Millisecond, 1, true}, 0, "wmem", 4 * mib, true, nil},
		"it may not":             {Connection{"a-b", 1000 * mbit, 80 * time.Millisecond, 1, true}, 0, "wmem", 4 * mib, false, []string{"path a-b", "host rome", "419 of 1000 Mbit/s", "RTT of 80ms", "CAP_NET_ADMIN", "net.ipv4.tcp_wmem there to 30000000"}},
		"nor here":               {Connection{"a-b", 1000 * mbit, 80 * time.Millisecond, 1, true}, 0, "rmem", 3 * mib, false, []string{"315 of 1000 Mbit/s", "net.ipv4.tcp_rmem there to 40000000"}},
		"nor need it":            {Connection{"a-b", 400 * mbit, 80 * time.Millisecond, 1, true}, 0, "wmem", 4 * mib, false, nil},
		"a limit needs no more":  {Connection{"a-b", 1000 * mbit, 80 * time.Millisecond, 1, true}, 100 * mbit, "wmem", 4 * mib, false, nil},
		"no rate is known":       {Connection{"a-b", 0, 80 * time.Millisecond, 1, true}, 0, "wmem", 4 * mib, true, []string{"419 of 1000 Mbit/s", "configure them, or raise", "to 30000000"}},
		"nor matters":            {Connection{"a-b", 0, 10 * time.Millisecond, 1, true}, 0, "wmem", 4 * mib, true, nil},
		"QEMU's own":             {Connection{"mptcp", 1000 * mbit, 80 * time.Millisecond, 2, false}, 0, "wmem", 8 * mib, true, []string{"path mptcp", "839 of 1000 Mbit/s", "QEMU", "to 15000000"}},
		"the host does not say":  {Connection{"a-b", 1000 * mbit, 80 * time.Millisecond, 1, true}, 0, "rmem", 0, false, nil},
		"the RTT is not known":   {Connection{"a-b", 1000 * mbit, 0, 1, true}, 0, "rmem", mib, false, nil},
		"the host says nonsense": {Connection{"a-b", 1000 * mbit, 80 * time.Millisecond, 1, true}, 0, "rmem", -1, false, nil},
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
	each := []Connection{{"a", 300, 10, 1, true}, {"b", 200, 40, 1, true}}
	for transfer, want := range map[string][]Connection{
		"lanes": each, "qemu-multifd": each,
		"mptcp":      {{"mptcp", 500, 40, 2, true}},
		"qemu-mptcp": {{"mptcp", 500, 40, 2, false}},
	} {
		if got := Connections(migration.Plan{Transfer: transfer}, paths, trips); !slices.Equal(got, want) {
			t.Errorf("%s: %+v, want %+v", transfer, got, want)
		}
	}
	paths[1].Rate = 0
	if got := Connections(migration.Plan{Transfer: "mptcp"}, paths, trips); got[0].rate != 0 {
		t.Errorf("one path's rate is not known, and that of both is %d", got[0].rate)
	}
}

// TestLast: the last bytes of our own data path take the shortest way, QEMU waits for all of its connections.
func TestLast(t *testing.T) {
	trips := []time.Duration{40, 10, 30}
	for transfer, want := range map[string]time.Duration{"lanes": 10, "mptcp": 10, "qemu-multifd": 40, "qemu-mptcp": 40} {
		if got := Last(migration.Plan{Transfer: transfer}, trips); got != want {
			t.Errorf("%s: %d, want %d", transfer, got, want)
		}
	}
	if got := Last(migration.Plan{Transfer: "lanes"}, nil); got != 0 {
		t.Errorf("without a path: %d", got)
	}
}
