package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"godwit/agent/config"
	"godwit/agent/peer"
	"godwit/agent/talk"
	"godwit/migration"
	"godwit/netstate/tunnel"
)

// TestEndOfFreeInnerAddresses: who answers with its end of a tunnel takes a port by which the inner addresses are nobody's
// on this host, and says so where there is none.
func TestEndOfFreeInnerAddresses(t *testing.T) {
	hostWithTunnels(t, func(ctx context.Context, a *Agent) error {
		add := func(prefix string) error {
			out, err := exec.CommandContext(ctx, "ip", "addr", "add", prefix, "dev", "br0").CombinedOutput()
			if err != nil {
				return fmt.Errorf("add %s: %w: %s", prefix, err, out)
			}
			return nil
		}
		here, there := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddrPort("127.0.0.2:7001")
		private, _, err := tunnel.NewKey()
		if err != nil {
			return err
		}
		if err := add("169.254.0.1/17"); err != nil { // half of what there is
			return err
		}
		half := netip.MustParsePrefix("169.254.0.0/17")
		for range 20 {
			end, err := a.answeringEnd("m-00000001", tunnel.WireGuard, here, there, private, nil)
			if err != nil {
				return err
			}
			own, peer := tunnel.InnerAddrs(end.Local, end.Remote)
			if half.Contains(own) || half.Contains(peer) || end.Remote != there {
				t.Errorf("the end %s to %s has the inner addresses %s and %s", end.Local, end.Remote, own, peer)
			}
		}
		offers, configs, err := a.offerTunnels("m-00000001", []peer.Path{{Name: "a", Local: here}}, []int{1400}, []talk.PathTunnel{{End: there}}, nil)
		if err != nil {
			return err
		}
		if own, _ := tunnel.InnerAddrs(configs[0].Local, there); half.Contains(own) || offers[0].End != configs[0].Local {
			t.Errorf("for memory: %+v", configs)
		}
		used, err := tunnel.InnerUsed(talk.MostInner)
		if err != nil || !slices.Contains(used, half) {
			t.Errorf("used: %v, %v", used, err)
		}
		for range 20 { // a quarter is left for both hosts
			end, err := a.answeringEnd("m-00000001", tunnel.WireGuard, here, there, private, []netip.Prefix{netip.MustParsePrefix("169.254.128.0/18")})
			if err != nil {
				return err
			}
			if own, peer := tunnel.InnerAddrs(end.Local, end.Remote); own.As4()[2] < 192 || peer.As4()[2] < 192 {
				t.Errorf("the other host has the inner addresses %s and %s", own, peer)
			}
		}
		if _, err := a.answeringEnd("m-00000001", tunnel.WireGuard, here, there, private, []netip.Prefix{netip.MustParsePrefix("169.254.0.0/16")}); err == nil {
			t.Error("none is left at the other host, and there is an end")
		}
		if err := add("169.254.128.1/17"); err != nil {
			return err
		}
		var problem *migration.Problem
		if _, err := a.answeringEnd("m-00000001", tunnel.WireGuard, here, there, private, nil); !errors.As(err, &problem) || !strings.Contains(err.Error(), "those of device br0") {
			t.Errorf("where none is free: %v", err)
		}
		if end, err := a.answeringEnd("m-00000001", tunnel.VXLAN, here, there, private, nil); err == nil || end.Local.Port() != there.Port() {
			t.Errorf("vxlan, whose ports are the same: %v, %v", end, err)
		}
		return nil
	})
}

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
