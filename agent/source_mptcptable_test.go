package agent

import (
	"strings"
	"testing"
	"time"

	"godwit/agent/record"
	"godwit/migration"
	"godwit/vm/guest"
)

// TestRoomMPTCP: 4096 were seen in a guest of 768 MiB.
func TestRoomMPTCP(t *testing.T) {
	for memory, want := range map[int64]int{0: 4, 1: 4, 64: 256, 65: 512, 256: 1024, 768: 4096, 1024: 4096, 1025: 8192, 3072: 16384, 1 << 20: 262144} {
		if got := roomMPTCP(memory << 20); got != want {
			t.Errorf("%d MiB: room for %d, want %d", memory, got, want)
		}
	}
}

// TestNoteUnread: a guest is told of when what waits for its readers may use up what its kernel
// gives TCP: by the buffers that have grown, or by what is in use already.
func TestNoteUnread(t *testing.T) {
	const mib = 1 << 20
	for name, c := range map[string]struct {
		unread *guest.Unread
		words  []string
	}{
		"not known":         {nil, nil},
		"no limit known":    {&guest.Unread{Grown: 100 * mib, Used: 100 * mib}, nil},
		"idle":              {&guest.Unread{Limit: 12 * mib, Used: 100 << 10}, nil},
		"room for all":      {&guest.Unread{Limit: 48 * mib, Grown: 48 * mib, Connections: 8}, nil},
		"buffers that grew": {&guest.Unread{Limit: 12 * mib, Grown: 18 * mib, Connections: 12}, []string{"18.0 MiB on 12 MPTCP connections", "gives all of TCP 12.0 MiB", "stand still", "tcp_rmem", "docs/guest.md"}},
		"used up":           {&guest.Unread{Limit: 12 * mib, Used: 9*mib + 1, Grown: 3 * mib, Connections: 2}, []string{"9.0 MiB are in use", "when that is used up"}},
		"seen so":           {&guest.Unread{Limit: 12 * mib, Used: 13 * mib, Grown: 54 * mib, Connections: 4}, []string{"54.0 MiB on 4 MPTCP connections", "that is used up: ", "moving does not help"}},
	} {
		m := &outgoing{rec: record.New("paris", migration.Plan{}, time.Now())}
		m.noteUnread(c.unread)
		notes := m.rec.Snapshot().Notes
		if (len(notes) > 0) != (c.words != nil) {
			t.Errorf("%s: notes %q", name, notes)
			continue
		}
		for _, word := range c.words {
			if !strings.Contains(notes[0], word) || strings.Contains(notes[0], "\n") {
				t.Errorf("%s: %q, want %q in one line", name, notes[0], word)
			}
		}
	}
}
