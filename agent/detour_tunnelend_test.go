package agent

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"godwit/agent/config"
	"godwit/netstate/tunnel"
)

// TestOwnEndAnew: a home's end of a tunnel takes the place of one that an earlier agent made there and did not live to write
// down, with another key.
func TestOwnEndAnew(t *testing.T) {
	hostWithTunnels(t, func(ctx context.Context, a *Agent) error {
		at := func(addr string) []config.Uplink {
			return []config.Uplink{{Name: "public", Address: netip.MustParseAddr(addr), Carries: "both"}}
		}
		a.config.Uplinks, a.config.Peers = at("127.0.0.1"), []config.Neighbour{{Host: "oslo", Site: "oslo", Uplinks: at("127.0.0.2")}}
		a.config.Network.MTU = 1400
		ask := goodRepoint()
		for port := uint16(700); port < 702; port++ {
			_, public, err := tunnel.NewKey()
			if err != nil {
				return err
			}
			ask.TunnelKey, ask.Tunnel = public, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), port)
			end, err := a.ownEnd(ctx, ask, "oslo")
			if err != nil {
				return err
			}
			defer tunnel.Down(context.Background(), end.Dir, end.Name) //nolint:errcheck // it goes with the namespace
			made, err := tunnel.Attach(ctx, end.Dir, end.Name)
			if err != nil || made.PeerKey != public || made.Remote != ask.Tunnel {
				return fmt.Errorf("%+v, %w", made, err)
			}
		}
		return nil
	})
}
