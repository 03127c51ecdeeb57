package ends

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"godwit/agent/agenttest"
	"godwit/agent/config"
	"godwit/agent/peer"
	"godwit/internal/clock"
	"godwit/netstate/tunnel"
)

// TestOfferMemory: tunnels for memory have the MTU that was measured, within what a tunnel may
// have, whatever the other host says.
func TestOfferMemory(t *testing.T) {
	here := netip.MustParseAddr("127.0.0.1")
	c := &config.Config{Host: "paris", Run: t.TempDir()}
	paths := []peer.Path{{Name: "a", Local: here}, {Name: "b", Local: here}, {Name: "c", Local: here}}
	offers, configs, err := OfferMemory(c, "m-00c0ffee", paths, []int{1320, 0, 1 << 30}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for k, want := range []int{1320, LeastMemoryMTU, MostMemoryMTU} {
		if configs[k].MTU != want || offers[k].MTU != want {
			t.Errorf("path %d: tunnel of %d, offered as %d, want %d", k, configs[k].MTU, offers[k].MTU, want)
		}
	}
	if _, _, err := OfferMemory(c, "m-00c0ffee", paths, []int{1320}, nil, nil); err == nil {
		t.Error("one MTU for three paths was taken")
	}
}

// TestTunnelsForMemoryAreKept as long as their migration is under way.
func TestTunnelsForMemoryAreKept(t *testing.T) {
	host(t, func(ctx context.Context, c *config.Config) error {
		c.Run += "/[run]" // is no pattern
		var said strings.Builder
		underWay := func(id string) bool { return id == "m-00000001" }
		for name, kept := range map[string]bool{MemoryName("m-00000001", 0): true, MemoryName("m-00000002", 0): false} {
			end := agenttest.Tunnel(t, Dir(c), name)
			if _, err := tunnel.Up(ctx, end); err != nil {
				return err
			}
			for range 20 { // as it is each second: on a busy machine a tunnel's process may not answer at once
				said.Reset()
				if ExtendMemory(ctx, c, underWay, slog.New(slog.NewTextHandler(&said, nil))); said.Len() == 0 {
					break
				}
			}
			up, err := tunnel.Attach(ctx, Dir(c), name)
			if err == nil {
				err = tunnel.Down(ctx, Dir(c), name)
			}
			if err != nil {
				return err
			}
			if left := clock.Until(up.Lease); kept != (left > config.DefaultLease) {
				return fmt.Errorf("%s has %v left, its migration is under way: %v; said: %s", name, left, kept, said.String())
			}
		}
		return nil
	})
}
