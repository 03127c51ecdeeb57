package ends

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"godwit/agent/agenttest"
	"godwit/agent/config"
	"godwit/agent/peer"
	"godwit/agent/talk"
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
		for name, kept := range map[string]bool{memoryName("m-00000001", 0): true, memoryName("m-00000002", 0): false} {
			end := agenttest.Tunnel(t, Dir(c), name)
			if _, err := tunnel.Up(ctx, end); err != nil {
				return err
			}
			for range 20 { // as it is each second: on a busy machine a tunnel's process may not answer at once
				said.Reset()
				if ExtendMemory(ctx, c, underWay, slog.New(slog.NewTextHandler(&said, nil)).Warn); said.Len() == 0 {
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

// TestTunnelsForMemoryAreRaised: each path's tunnel comes up towards what the other host offered for it, and all of a
// migration's go again, and no other's; what does not fit together is refused.
func TestTunnelsForMemoryAreRaised(t *testing.T) {
	host(t, func(ctx context.Context, c *config.Config) error {
		here := netip.MustParseAddr("127.0.0.1")
		paths := []peer.Path{{Name: "a", Local: here}, {Name: "b", Local: here}}
		raise := func(id string, change func([]talk.PathTunnel) []talk.PathTunnel) ([]*tunnel.Tunnel, []talk.PathTunnel, error) {
			_, configs, err := OfferMemory(c, id, paths, []int{1400, 1300}, nil, nil)
			if err != nil {
				return nil, nil, err
			}
			theirs, _, err := OfferMemory(c, id, paths, []int{1400, 1300}, nil, nil)
			if err != nil {
				return nil, nil, err
			}
			up, err := RaiseMemory(ctx, configs, change(theirs))
			return up, theirs, err
		}
		asTheyAre := func(theirs []talk.PathTunnel) []talk.PathTunnel { return theirs }
		for _, id := range []string{"m-00000001", "m-00000002"} {
			defer DropMemory(ctx, c, id) //nolint:errcheck // where the test fails
			up, theirs, err := raise(id, asTheyAre)
			if err != nil || len(up) != 2 {
				return fmt.Errorf("%d tunnels are up: %w", len(up), err)
			}
			for k, tun := range up {
				key, err := tunnel.ParseKey(theirs[k].Key)
				if err != nil {
					return err
				}
				if tun.Name != memoryName(id, k) || tun.Remote != theirs[k].End || tun.PeerKey != key.String() {
					t.Errorf("path %d: %s to %s, want %s", k, tun.Name, tun.Remote, theirs[k].End)
				}
			}
		}
		for name, change := range map[string]func([]talk.PathTunnel) []talk.PathTunnel{
			"one for two":   func(theirs []talk.PathTunnel) []talk.PathTunnel { return theirs[:1] },
			"its key is no": func(theirs []talk.PathTunnel) []talk.PathTunnel { theirs[0].Key = "no"; return theirs },
		} {
			up, _, err := raise("m-00000003", change)
			if err == nil || len(up) > 0 {
				t.Errorf("%s: %d tunnels, %v", name, len(up), err)
			}
		}
		guests := agenttest.Tunnel(t, Dir(c), "gwt-00000001") // leads its guest
		if _, err := tunnel.Up(ctx, guests); err != nil {
			return err
		}
		if err := DropMemory(ctx, c, "m-00000001"); err != nil {
			return err
		}
		if got, want := tunnels(ctx, t, c), []string{memoryName("m-00000002", 0), memoryName("m-00000002", 1), guests.Name}; !slices.Equal(got, want) {
			t.Errorf("left are %q, want %q", got, want)
		}
		return errors.Join(DropMemory(ctx, c, "m-00000002"), tunnel.Down(ctx, Dir(c), guests.Name))
	})
}

// tunnels are the names of those that there are.
func tunnels(ctx context.Context, t *testing.T, c *config.Config) (names []string) {
	t.Helper()
	found, err := tunnel.Found(ctx, Dir(c))
	if err != nil {
		t.Error(err)
	}
	for _, f := range found {
		names = append(names, f.Name)
	}
	slices.Sort(names)
	return names
}
