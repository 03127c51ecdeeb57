package qemu_test

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"godwit/vm/qemu/qmp"
)

// TestChannelCountsAsConnected: QEMU takes the port of a guest that is to come for connected, as it is at the source, so
// that the guest is told nothing of it at its first instruction; and who comes is heard.
func TestChannelCountsAsConnected(t *testing.T) {
	for name, incoming := range map[string]bool{"incoming": true, "booting": false} {
		t.Run(name, func(t *testing.T) {
			spec := firmware(t)
			spec.Incoming = incoming
			p := start(t, spec)
			look, err := net.Dial("unix", filepath.Join(p.Dir(), "look.sock"))
			if err != nil {
				t.Fatal(err)
			}
			client, err := qmp.New(t.Context(), look)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			host := func() string {
				var text string
				if err := client.Do(t.Context(), "human-monitor-command", map[string]string{"command-line": "info qtree"}, &text); err != nil {
					t.Fatal(err)
				}
				_, port, _ := strings.Cut(text, "port 1, guest off, host ")
				state, _, _ := strings.Cut(port, ",")
				return state
			}
			want := "off"
			if incoming {
				want = "on"
			}
			eventually(t, want, host)          // who started it is gone a moment later
			time.Sleep(300 * time.Millisecond) // in which a port that counts as connected would be let go
			eventually(t, want, host)
			channel, err := net.Dial("unix", p.GuestChannel())
			if err != nil {
				t.Fatal(err)
			}
			defer channel.Close()
			eventually(t, "on", host)
		})
	}
}

// eventually waits for got to be want.
func eventually(t *testing.T, want string, got func() string) {
	t.Helper()
	last := got()
	for end := time.Now().Add(10 * time.Second); last != want; last = got() {
		if time.Now().After(end) {
			t.Fatalf("got %q, want %q", last, want)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
