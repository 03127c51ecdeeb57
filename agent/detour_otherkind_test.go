package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"testing"

	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/ends"
	"godwit/agent/talk"
	"godwit/internal/need"
	"godwit/netstate"
	"godwit/netstate/tunnel"
)

// TestLeadsOverVXLAN: a tunnel of a kind that fragments goes where its guest's host asks, with the port that both its
// ends have.
func TestLeadsOverVXLAN(t *testing.T) {
	need.Root(t)
	hostWithTunnels(t, func(ctx context.Context, a *Agent) error {
		a.config.Uplinks, a.config.Network.MTU = twoUplinks("127.0.0.1", "127.0.0.2"), 1420
		a.config.Peers = []config.Neighbour{{Host: "paris", Site: "paris", Uplinks: twoUplinks("127.0.1.1", "127.0.1.2")}}
		d := visitsByTunnel(t, a)
		d.Tunnel.Kind, d.Tunnel.Remote = tunnel.VXLAN, netip.MustParseAddrPort("127.0.1.1:7001")
		if _, err := tunnel.Up(ctx, d.Tunnel); err != nil {
			return err
		}
		defer tunnel.Down(context.Background(), ends.Dir(a.config), d.Tunnel.Name) //nolint:errcheck // it goes with the namespace
		if err := a.detours.Change("web", func(all map[string]*detour.Detour) { all[d.ID] = d }); err != nil {
			return err
		}
		ask := talk.LeadOver{Tunnel: netip.MustParseAddrPort("127.0.1.2:7009"), TunnelTo: netip.MustParseAddr("127.0.0.2")}
		answer, err := a.peerLeadOver(callFrom(t, "paris", d.ID, ask))
		if err != nil {
			return err
		}
		now, err := tunnel.Attach(ctx, ends.Dir(a.config), d.Tunnel.Name)
		want := netip.MustParseAddrPort("127.0.0.2:7009")
		if err != nil || now.Kind != tunnel.VXLAN || now.Local != want || now.Remote != ask.Tunnel || answer.(talk.Prepared).Tunnel != want || !tunnel.Exists(now.Name) {
			return fmt.Errorf("answers %+v, stands %+v: %w", answer, now, err)
		}
		return a.detours.Remove(ctx, d.ID)
	})
}

// TestShrinks: where a tunnel's path drops fragments, both ends of a connection that begins are told to send packets
// that go in one piece, however large they are by what the path was before, and no more where all passes again; what is
// at home here takes no tunnel.
func TestShrinks(t *testing.T) {
	visitsByOneOfTwo(t, func(ctx context.Context, a *Agent, d *detour.Detour, _ *tunnel.Tunnel) error {
		err := a.detours.Change("web", func(all map[string]*detour.Detour) {
			one, home := d.Visiting[0], d.Visiting[0]
			one.Addr, one.Fits = netip.MustParseAddr("10.1.1.6"), 1408
			home.Addr, home.Tunnel, home.Gateway = netip.MustParseAddr("10.2.1.7"), "", netip.MustParseAddr("10.2.1.1")
			all[d.ID].Visiting = append(all[d.ID].Visiting, one, home)
		})
		if err != nil {
			return err
		}
		for _, c := range []struct {
			small bool
			want  map[string]int
		}{
			{true, map[string]int{"10.1.1.5": 1200, "10.1.1.6": 1200, "10.2.1.7": 0}},
			{false, map[string]int{"10.1.1.5": 0, "10.1.1.6": 1408, "10.2.1.7": 0}},
		} {
			a.tunnelWay(d.ID, nil).Shrink(c.small)
			inv, err := netstate.Found()
			if err != nil {
				return err
			}
			fits := map[string]int{}
			for _, v := range inv.States["web"].Visiting {
				fits[v.Addr.String()] = v.Fits
			}
			written, err := detour.Load(a.config.StatePath("detours.json"), a.config.Network)
			if err != nil {
				return err
			}
			if kept, _ := written.Get(d.ID); kept.Small != c.small || !maps.Equal(fits, c.want) {
				return fmt.Errorf("small %v: packets of %v bytes, want %v; written %v", c.small, fits, c.want, kept.Small)
			}
		}
		return a.detours.Remove(ctx, d.ID)
	})
}

// TestStaysSmall: while a tunnel has no process, as after its host's start, its path is taken for what it was.
func TestStaysSmall(t *testing.T) {
	visitsByOneOfTwo(t, func(ctx context.Context, a *Agent, d *detour.Detour, _ *tunnel.Tunnel) error {
		a.tunnelWay(d.ID, nil).Shrink(true)
		if err := detour.DropTunnel(ctx, ends.Dir(a.config), d.Tunnel.Name); err != nil {
			return err
		}
		way := a.tunnelWay(d.ID, nil)
		if _, _, kept := way.Takes(); !kept {
			return errors.New("it is not this host's to lead")
		}
		way.Keep(ctx)
		if d, _ := a.detours.Get(d.ID); !d.Small {
			return errors.New("connections begin with large packets")
		}
		return a.detours.Remove(ctx, d.ID)
	})
}
