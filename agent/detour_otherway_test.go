package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"godwit/agent/agenttest"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/ends"
	"godwit/agent/otherway"
	"godwit/agent/peer"
	"godwit/agent/talk"
	"godwit/migration"
	"godwit/netstate/tunnel"
)

// visitsByOneOfTwo has what leads a guest of paris here stand, over the first of two pairs of uplinks.
func visitsByOneOfTwo(t *testing.T, do func(context.Context, *Agent, *detour.Detour, *tunnel.Tunnel) error) {
	t.Helper()
	hostWithTunnels(t, func(ctx context.Context, a *Agent) error {
		a.config.Uplinks, a.config.Network.MTU = twoUplinks("127.0.0.1", "127.0.0.2"), 1420
		a.config.Peers = []config.Neighbour{{Host: "paris", Site: "paris", Uplinks: twoUplinks("127.0.1.1", "127.0.1.2")}}
		d, up, err := visitsBy(ctx, t, a)
		if err != nil {
			return err
		}
		defer tunnel.Down(context.Background(), ends.Dir(a.config), d.Tunnel.Name) //nolint:errcheck // it goes with the namespace
		return do(ctx, a, d, up)
	})
}

// TestPeerLeadsOver: the other end of a leased tunnel goes where its guest's host asks, with what leads into it, and is
// written down there. Asked twice it goes once; so it does where an agent was killed between what it wrote and what it
// did.
func TestPeerLeadsOver(t *testing.T) {
	visitsByOneOfTwo(t, func(ctx context.Context, a *Agent, d *detour.Detour, up *tunnel.Tunnel) error {
		routes := func() string {
			out, _ := exec.CommandContext(t.Context(), "ip", "-4", "route", "show", "table", "all", "dev", d.Tunnel.Name).CombinedOutput()
			lines := strings.Split(string(out), "\n")
			return strings.Join(slices.DeleteFunc(lines, func(line string) bool { return strings.Contains(line, "169.254.") }), "\n")
		}
		led := routes()
		ask := talk.LeadOver{Tunnel: netip.MustParseAddrPort("127.0.1.2:800"), TunnelTo: netip.MustParseAddr("127.0.0.2")}
		stands := func(what string) (int, error) {
			answer, err := a.peerLeadOver(callFrom(t, "paris", d.ID, ask))
			if err != nil {
				return 0, fmt.Errorf("%s: %w", what, err)
			}
			written, err := detour.Load(a.config.StatePath("detours.json"), a.config.Network)
			if err != nil {
				return 0, err
			}
			kept, _ := written.Get(d.ID)
			now, err := tunnel.Attach(ctx, ends.Dir(a.config), d.Tunnel.Name)
			at := answer.(talk.Prepared).Tunnel
			if err != nil || now.PID == up.PID || at.Addr() != ask.TunnelTo || now.Local != at || now.Remote != ask.Tunnel ||
				kept.Tunnel.Local != at || kept.Tunnel.Remote != ask.Tunnel || kept.Tunnel.PrivateKey != d.Tunnel.PrivateKey || now.PeerKey != up.PeerKey || routes() != led {
				return 0, fmt.Errorf("%s: %w: it is at %s, written down %s to %s, stands %+v, leads %q, before %q", what, err, at, kept.Tunnel.Local, kept.Tunnel.Remote, now, routes(), led)
			}
			return now.PID, nil
		}
		first, err := stands("asked")
		if err != nil {
			return err
		}
		if again, err := stands("asked again"); err != nil || again != first {
			return fmt.Errorf("asked twice it goes twice: %d, %d, %w", first, again, err)
		}
		ask = talk.LeadOver{Tunnel: netip.MustParseAddrPort("127.0.1.1:900"), TunnelTo: netip.MustParseAddr("127.0.0.1")}
		killed, _ := a.detours.Get(d.ID)
		killed.Tunnel.Remote, killed.Tunnel.Local = ask.Tunnel, netip.MustParseAddrPort("127.0.0.1:901")
		if err := a.detours.Change("web", func(all map[string]*detour.Detour) { all[d.ID].Tunnel = killed.Tunnel }); err != nil {
			return err
		}
		if _, err := stands("of a killed agent"); err != nil {
			return err
		}
		return a.detours.Remove(ctx, d.ID)
	})
}

// TestLeadOverIsChecked: no host leads a tunnel that it has no part in, or to anywhere but between uplinks that carry
// guests.
func TestLeadOverIsChecked(t *testing.T) {
	for _, c := range []struct {
		name, caller, id string
		tunnel, to       string
		change           func(*detour.Detour)
		code             migration.Code
	}{
		{name: "of another host", caller: "oslo", code: migration.CodePeer},
		{name: "none", caller: "paris", id: "m-00000009", code: migration.CodeUsage},
		{name: "to a third party", caller: "paris", tunnel: "203.0.113.7:800", code: migration.CodePeer},
		{name: "to no port", caller: "paris", tunnel: "127.0.1.1:0", code: migration.CodePeer},
		{name: "at an uplink without guests", caller: "paris", to: "127.0.0.9", code: migration.CodePeer},
		{name: "its migration is under way", caller: "paris", change: func(d *detour.Detour) { d.Leased = false }, code: migration.CodeBusy},
		{name: "none needed", caller: "paris", change: func(d *detour.Detour) { d.Visiting[0].Tunnel = "" }, code: migration.CodeBusy},
		{name: "of ipip", caller: "paris", change: func(d *detour.Detour) { d.Tunnel.Kind = tunnel.IPIP }, code: migration.CodeBusy},
		{name: "of gre over IPv6", caller: "paris", change: func(d *detour.Detour) {
			d.Tunnel.Kind, d.Tunnel.Local = tunnel.GRE, netip.MustParseAddrPort("[::1]:7001")
		}, code: migration.CodeBusy},
		{name: "of vxlan to IPv6", caller: "paris", to: "::1", change: func(d *detour.Detour) { d.Tunnel.Kind = tunnel.VXLAN }, code: migration.CodeBusy},
	} {
		a, _, d := leasing(t)
		d.Visiting[0].Tunnel, d.Tunnel.Kind, d.Tunnel.Local = d.Tunnel.Name, tunnel.WireGuard, netip.MustParseAddrPort("127.0.0.1:7001")
		a.config.Uplinks = twoUplinks("127.0.0.1", "127.0.0.2")
		a.config.Peers = []config.Neighbour{{Host: "paris", Uplinks: twoUplinks("127.0.1.1", "127.0.1.2")}, {Host: "oslo", Uplinks: twoUplinks("127.0.2.1", "127.0.2.2")}}
		if c.change != nil {
			c.change(d)
		}
		ask := talk.LeadOver{Tunnel: netip.MustParseAddrPort("127.0.1.1:800"), TunnelTo: netip.MustParseAddr("127.0.0.2")}
		if c.tunnel != "" {
			ask.Tunnel = netip.MustParseAddrPort(c.tunnel)
		}
		if c.to != "" {
			ask.TunnelTo = netip.MustParseAddr(c.to)
		}
		id := d.ID
		if c.id != "" {
			id = c.id
		}
		_, err := a.peerLeadOver(callFrom(t, c.caller, id, ask))
		agenttest.Refused(t, c.name, err, c.code, "another pair of uplinks")
	}
}

// TestAsksToLeadOver: the other end is asked to go by the pair that was chosen, this one with a port of its own there,
// or where it is; it is not taken to be anywhere else.
func TestAsksToLeadOver(t *testing.T) {
	const own = "127.0.0.1:7001"
	for _, over := range []peer.Path{
		{Name: "second-public", Local: netip.MustParseAddr("127.0.0.2"), Remote: netip.MustParseAddr("127.0.1.1")},
		{Name: "public-public", Local: netip.MustParseAddr("127.0.0.1"), Remote: netip.MustParseAddr("127.0.1.1")},
	} {
		a, _, d := leasing(t)
		a.config.Peers = []config.Neighbour{{Host: "paris", Uplinks: twoUplinks("127.0.1.1", "127.0.1.2")}}
		d.Tunnel.Local, d.Tunnel.Remote = netip.MustParseAddrPort(own), netip.MustParseAddrPort("127.0.1.1:7002")
		var asked []talk.LeadOver
		a.links["paris"] = linked(t, "rome", "paris", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var ask talk.LeadOver
			if err := json.NewDecoder(r.Body).Decode(&ask); err != nil || r.URL.Path != "/v1/detours/"+d.ID+"/over" {
				t.Errorf("%s: %v", r.URL, err)
			}
			asked = append(asked, ask)
			peer.Answer(w, talk.Prepared{Tunnel: netip.MustParseAddrPort("203.0.113.7:800")}, nil)
		}))
		err := a.leadOver(t.Context(), d.ID, over)
		agenttest.Refused(t, over.Name, err, migration.CodePeer, "203.0.113.7:800")
		if len(asked) != 1 || asked[0].Tunnel.Addr() != over.Local || asked[0].Tunnel.Port() == 0 || asked[0].TunnelTo != over.Remote ||
			(asked[0].Tunnel.String() == own) != (over.Name == "public-public") {
			t.Errorf("%s: asked %v", over.Name, asked)
		}
		if now := placed(a, d.ID); now.Tunnel.Local != d.Tunnel.Local || now.Tunnel.Remote != d.Tunnel.Remote {
			t.Errorf("%s: it is taken to be at %s to %s", over.Name, now.Tunnel.Local, now.Tunnel.Remote)
		}
	}
}

// TestLeadsOverWholly: a tunnel that is being led over another pair of uplinks stands there also where whoever waited
// does not any more, as many were led at once, or the agent ends.
func TestLeadsOverWholly(t *testing.T) {
	hostWithTunnels(t, func(ctx context.Context, a *Agent) error {
		d, _, err := visitsBy(ctx, t, a)
		if err != nil {
			return err
		}
		defer tunnel.Down(context.Background(), ends.Dir(a.config), d.Tunnel.Name) //nolint:errcheck // it goes with the namespace
		end := d.Tunnel
		end.Local, end.Remote = netip.MustParseAddrPort("127.0.0.2:901"), netip.MustParseAddrPort("127.0.1.2:800")
		over, cancel := context.WithCancel(ctx)
		cancel()
		if err := a.placeEnd(over, *d, end); err != nil {
			return err
		}
		now, err := tunnel.Attach(ctx, ends.Dir(a.config), d.Tunnel.Name)
		if err != nil || now.Local != end.Local || now.Remote != end.Remote || !tunnel.Exists(d.Tunnel.Name) {
			return fmt.Errorf("stands %+v: %w", now, err)
		}
		return a.detours.Remove(ctx, d.ID)
	})
}

// TestLeadsOverUnwritten: a tunnel goes where both its ends are to be also while STATE is full or read-only: its other
// end is there already.
func TestLeadsOverUnwritten(t *testing.T) {
	hostWithTunnels(t, func(ctx context.Context, a *Agent) error {
		d, _, err := visitsBy(ctx, t, a)
		if err != nil {
			return err
		}
		defer tunnel.Down(context.Background(), ends.Dir(a.config), d.Tunnel.Name) //nolint:errcheck // it goes with the namespace
		stateFull(t, a)
		end := d.Tunnel
		end.Local, end.Remote = netip.MustParseAddrPort("127.0.0.2:901"), netip.MustParseAddrPort("127.0.1.2:800")
		if err := a.placeEnd(ctx, *d, end); err != nil {
			return err
		}
		now, err := tunnel.Attach(ctx, ends.Dir(a.config), d.Tunnel.Name)
		if noted := placed(a, d.ID).Tunnel; err != nil || now.Local != end.Local || now.Remote != end.Remote || noted.Local != end.Local {
			return fmt.Errorf("stands %+v, noted at %s: %w", now, noted.Local, err)
		}
		return nil
	})
}

// TestLeadsOverNobodysAsk: who gave up while others were led asks anew, with another end; a tunnel is not led to the
// one before.
func TestLeadsOverNobodysAsk(t *testing.T) {
	visitsByOneOfTwo(t, func(ctx context.Context, a *Agent, d *detour.Detour, up *tunnel.Tunnel) error {
		over, cancel := context.WithCancel(ctx)
		cancel()
		ask := talk.LeadOver{Tunnel: netip.MustParseAddrPort("127.0.1.2:800"), TunnelTo: netip.MustParseAddr("127.0.0.2")}
		_, asked := a.peerLeadOver(callFrom(t, "paris", d.ID, ask).WithContext(over))
		now, err := tunnel.Attach(ctx, ends.Dir(a.config), d.Tunnel.Name)
		if !errors.Is(asked, context.Canceled) || err != nil || now.PID != up.PID || placed(a, d.ID).Tunnel.Local != d.Tunnel.Local {
			return fmt.Errorf("%w: stands %+v, written down %s: %w", asked, now, placed(a, d.ID).Tunnel.Local, err)
		}
		return a.detours.Remove(ctx, d.ID)
	})
}

// TestCarries: what comes through a tunnel is heard also where no echo does; of one through which nothing comes,
// neither is said.
func TestCarries(t *testing.T) {
	hostWithTunnels(t, func(ctx context.Context, a *Agent) error {
		private, public, err := tunnel.NewKey()
		if err != nil {
			return err
		}
		here, there := agenttest.Tunnel(t, ends.Dir(a.config), "gwt-00000001"), agenttest.Tunnel(t, ends.Dir(a.config), "gwt-00000002")
		there.PrivateKey, there.Local, there.Remote = private, here.Remote, here.Local
		if here.PeerKey, err = tunnel.ParseKey(public); err != nil {
			return err
		}
		if there.PeerKey, err = tunnel.ParseKey(here.PrivateKey.PublicKey().String()); err != nil {
			return err
		}
		for _, end := range []tunnel.Config{here, there} {
			if _, err := tunnel.Up(ctx, end); err != nil {
				return err
			}
			defer tunnel.Down(context.Background(), end.Dir, end.Name) //nolint:errcheck // it goes with the namespace
		}
		soon, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		if passes := otherway.Through(soon, here); passes != otherway.Nothing { // an echo's answer takes the host's own way
			return fmt.Errorf("silent: %v", passes)
		}
		into := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) (err error) {
			cerr := raw.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), there.Name) })
			return errors.Join(cerr, err)
		}}
		conn, err := into.DialContext(ctx, "udp4", "192.0.2.9:9")
		if err != nil {
			return err
		}
		defer conn.Close()
		sending, end := context.WithCancel(ctx)
		defer end()
		a.actors.Go(func() {
			for sleep(sending, 20*time.Millisecond) {
				conn.Write([]byte("from a client")) //nolint:errcheck // the next may get there
			}
		})
		if passes := otherway.Through(ctx, here); passes != otherway.NoEcho {
			return fmt.Errorf("echoes alone do not pass: %v", passes)
		}
		return nil
	})
}
