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
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/limits"
	"godwit/agent/peer"
	"godwit/migration"
	"godwit/netstate/tunnel"
)

// TestSilentTunnelTakesAnotherPair: a tunnel that does not answer is led over the first other pair that does, and stays there; one by which it
// does not answer all the same is left for any other that does.
func TestSilentTunnelTakesAnotherPair(t *testing.T) {
	always, never := func(time.Duration) bool { return true }, func(time.Duration) bool { return false }
	before := func(end time.Duration) func(time.Duration) bool {
		return func(at time.Duration) bool { return at < end }
	}
	since := func(begin time.Duration) func(time.Duration) bool {
		return func(at time.Duration) bool { return at >= begin }
	}
	type pair struct {
		up, carries func(time.Duration) bool // at a time since the beginning
	}
	for _, c := range []struct {
		name    string
		pairs   [3]pair // the tunnel takes the second
		refuses int     // how often the other end does not go
		none    string  // the pairs by which it never goes
		heard   string  // the pairs that all but echoes passes
		drops   string  // the pairs that drop fragments
		shrinks string  // those of them by which connections began with small packets
		ends    time.Duration
		led     string
		within  time.Duration
	}{
		{name: "it answers", pairs: [3]pair{{always, always}, {never, always}, {always, always}}},
		{name: "its pair is down", pairs: [3]pair{{always, always}, {never, never}, {always, always}}, led: "a", within: 10 * time.Second},
		{name: "its pair and the first are down", pairs: [3]pair{{never, never}, {never, never}, {always, always}}, led: "c", within: 10 * time.Second},
		{name: "a moment without an answer", pairs: [3]pair{{always, always}, {never, since(4 * time.Second)}, {always, always}}, within: 4 * time.Second},
		{name: "its pair answers, and the other end was elsewhere", pairs: [3]pair{{always, always}, {always, since(7 * time.Second)}, {always, always}}, led: "b", within: 7 * time.Second},
		{name: "no tunnel passes its pair", pairs: [3]pair{{always, always}, {always, never}, {always, always}}, led: "b a", within: 20 * time.Second},
		{name: "no tunnel passes but the last", pairs: [3]pair{{always, never}, {always, never}, {always, always}}, led: "b a c", within: 45 * time.Second},
		{name: "echoes do not pass", pairs: [3]pair{{always, never}, {always, never}, {always, never}}, ends: 4 * time.Minute, led: "b a c b a c", within: 5 * time.Minute},
		{name: "echoes alone do not pass", pairs: [3]pair{{always, never}, {always, never}, {always, never}}, heard: "abc", led: "b", within: 20 * time.Second},
		{name: "its pair is down, and echoes do not pass the other", pairs: [3]pair{{always, never}, {never, never}, {never, never}}, heard: "a", led: "a", within: 20 * time.Second},
		{name: "its pair is down one way", pairs: [3]pair{{always, always}, {never, never}, {never, never}}, heard: "b", led: "a", within: 20 * time.Second},
		{name: "no tunnel passes the other, and its own comes back", pairs: [3]pair{{always, never}, {since(30 * time.Second), since(30 * time.Second)}, {never, never}}, led: "a b", within: time.Minute},
		{name: "nothing answers for a while", pairs: [3]pair{{since(40 * time.Second), since(40 * time.Second)}, {before(0), before(0)}, {never, never}}, led: "a", within: time.Minute},
		{name: "the other end does not go at first", pairs: [3]pair{{always, always}, {never, never}, {never, never}}, refuses: 2, led: "a", within: 30 * time.Second},
		{name: "the other end takes the first for none", pairs: [3]pair{{always, always}, {never, never}, {always, always}}, none: "a", led: "c", within: 30 * time.Second},
		{name: "its pair drops fragments", pairs: [3]pair{{always, always}, {always, always}, {always, always}}, drops: "b", shrinks: "b", led: "a", within: 10 * time.Second},
		{name: "all others drop fragments, and its own comes back", pairs: [3]pair{{always, always}, {since(time.Minute), since(time.Minute)}, {always, always}}, drops: "ac", shrinks: "ac", led: "a c b", within: 3 * time.Minute},
		{name: "the other drops fragments, and goes down too", pairs: [3]pair{{before(40 * time.Second), before(40 * time.Second)}, {never, never}, {since(2 * time.Minute), since(2 * time.Minute)}}, drops: "a", shrinks: "a", led: "a c", within: 4 * time.Minute},
		{name: "all drop fragments", pairs: [3]pair{{always, always}, {always, always}, {always, always}}, drops: "abc", shrinks: "bac", ends: 4 * time.Minute, led: "a c", within: 6 * time.Minute},
		{name: "its pair drops fragments, and no tunnel passes another", pairs: [3]pair{{always, never}, {always, always}, {never, never}}, drops: "b", shrinks: "b", ends: 4 * time.Minute, led: "a b", within: 6 * time.Minute},
		{name: "the only one up drops fragments", pairs: [3]pair{{never, never}, {always, always}, {never, never}}, drops: "b", shrinks: "b", ends: 4 * time.Minute, within: 6 * time.Minute},
		{name: "its host answers by none, and its pair drops fragments", pairs: [3]pair{{never, never}, {never, always}, {never, never}}, drops: "b", shrinks: "b", ends: 4 * time.Minute, within: 6 * time.Minute},
		{name: "its lease ends", pairs: [3]pair{{never, never}, {never, never}, {never, never}}, ends: time.Minute, within: 2 * time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			begun, at, led, shrunk, sends := time.Now(), "b", []string(nil), []string(nil), ""
			local := map[string]netip.Addr{"a": netip.MustParseAddr("192.0.2.1"), "b": netip.MustParseAddr("192.0.2.2"), "c": netip.MustParseAddr("192.0.2.3")}
			w := tunnelWay{
				takes: func() (netip.Addr, netip.Addr, bool) {
					return local[at], netip.Addr{}, c.ends == 0 || time.Since(begun) < c.ends
				},
				answers: func(ctx context.Context) passage {
					ctx, cancel := limits.TryTunnel.On(ctx)
					defer cancel()
					echoes := false
					for ok := true; ok; ok = sleep(ctx, time.Second) {
						if echoes = c.pairs[at[0]-'a'].carries(time.Since(begun)); echoes && !strings.Contains(c.drops, at) {
							return whole
						}
					}
					switch {
					case echoes:
						return small
					case strings.Contains(c.heard, at):
						return noEcho
					}
					return nothing
				},
				reaches: func(ctx context.Context, p peer.Path) (time.Duration, error) {
					if c.pairs[p.Name[0]-'a'].up(time.Since(begun)) {
						return 0, nil
					}
					sleep(ctx, limits.TryWay.For)
					return 0, errors.New("down")
				},
				lead: func(_ context.Context, p peer.Path) error {
					if c.refuses--; c.refuses >= 0 {
						return errors.New("busy")
					}
					if strings.Contains(c.none, p.Name) {
						return errors.New("none that carries guests")
					}
					at, led = p.Name, append(led, p.Name)
					return nil
				},
				shrink: func(small bool) {
					if sends = "whole"; small {
						sends, shrunk = "small", append(shrunk, at)
					}
				},
			}
			for _, name := range []string{"a", "b", "c"} {
				w.pairs = append(w.pairs, peer.Path{Name: name, Local: local[name]})
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			w.keep(ctx)
			took := time.Since(begun)
			w.keep(ctx) // where it answers it stays
			if strings.Join(slices.Compact(led), " ") != c.led || took > c.within || strings.Join(slices.Compact(shrunk), "") != c.shrinks {
				t.Errorf("%s: led over %v within %v, with small packets %v, want %s, %s", c.name, led, took, shrunk, c.led, c.shrinks)
			}
			if passes := w.answers(t.Context()); (passes == whole) != (sends == "whole") && passes != nothing {
				t.Errorf("%s: %v comes through it, and connections begin with what is %s", c.name, passes, sends)
			}
		})
	}
}

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
		defer tunnel.Down(context.Background(), a.tunnelDir(), d.Tunnel.Name) //nolint:errcheck // it goes with the namespace
		return do(ctx, a, d, up)
	})
}

// TestPeerLeadsOver: the other end of a leased tunnel goes where its guest's host asks, with what leads into it, and is written down there. Asked twice
// it goes once; so it does where an agent was killed between what it wrote and what it did.
func TestPeerLeadsOver(t *testing.T) {
	visitsByOneOfTwo(t, func(ctx context.Context, a *Agent, d *detour.Detour, up *tunnel.Tunnel) error {
		routes := func() string {
			out, _ := exec.CommandContext(t.Context(), "ip", "-4", "route", "show", "table", "all", "dev", d.Tunnel.Name).CombinedOutput()
			lines := strings.Split(string(out), "\n")
			return strings.Join(slices.DeleteFunc(lines, func(line string) bool { return strings.Contains(line, "169.254.") }), "\n")
		}
		led := routes()
		ask := LeadOver{netip.MustParseAddrPort("127.0.1.2:800"), netip.MustParseAddr("127.0.0.2")}
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
			now, err := tunnel.Attach(ctx, a.tunnelDir(), d.Tunnel.Name)
			at := answer.(Prepared).Tunnel
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
		ask = LeadOver{netip.MustParseAddrPort("127.0.1.1:900"), netip.MustParseAddr("127.0.0.1")}
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

// TestLeadOverIsChecked: no host leads a tunnel that it has no part in, or to anywhere but between uplinks that carry guests.
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
		ask := LeadOver{netip.MustParseAddrPort("127.0.1.1:800"), netip.MustParseAddr("127.0.0.2")}
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
		refused(t, c.name, err, c.code, "another pair of uplinks")
	}
}

// TestAsksToLeadOver: the other end is asked to go by the pair that was chosen, this one with a port of its own there, or where it is; it is not
// taken to be anywhere else.
func TestAsksToLeadOver(t *testing.T) {
	const own = "127.0.0.1:7001"
	for _, over := range []peer.Path{
		{Name: "second-public", Local: netip.MustParseAddr("127.0.0.2"), Remote: netip.MustParseAddr("127.0.1.1")},
		{Name: "public-public", Local: netip.MustParseAddr("127.0.0.1"), Remote: netip.MustParseAddr("127.0.1.1")},
	} {
		a, _, d := leasing(t)
		a.config.Peers = []config.Neighbour{{Host: "paris", Uplinks: twoUplinks("127.0.1.1", "127.0.1.2")}}
		d.Tunnel.Local, d.Tunnel.Remote = netip.MustParseAddrPort(own), netip.MustParseAddrPort("127.0.1.1:7002")
		var asked []LeadOver
		a.links["paris"] = linked(t, "rome", "paris", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var ask LeadOver
			if err := json.NewDecoder(r.Body).Decode(&ask); err != nil || r.URL.Path != "/v1/detours/"+d.ID+"/over" {
				t.Errorf("%s: %v", r.URL, err)
			}
			asked = append(asked, ask)
			peer.Answer(w, Prepared{Tunnel: netip.MustParseAddrPort("203.0.113.7:800")}, nil)
		}))
		err := a.leadOver(t.Context(), d.ID, over)
		refused(t, over.Name, err, migration.CodePeer, "203.0.113.7:800")
		if len(asked) != 1 || asked[0].Tunnel.Addr() != over.Local || asked[0].Tunnel.Port() == 0 || asked[0].TunnelTo != over.Remote ||
			(asked[0].Tunnel.String() == own) != (over.Name == "public-public") {
			t.Errorf("%s: asked %v", over.Name, asked)
		}
		if now := placed(a, d.ID); now.Tunnel.Local != d.Tunnel.Local || now.Tunnel.Remote != d.Tunnel.Remote {
			t.Errorf("%s: it is taken to be at %s to %s", over.Name, now.Tunnel.Local, now.Tunnel.Remote)
		}
	}
}

// TestLeadsOverWholly: a tunnel that is being led over another pair of uplinks stands there also where whoever waited does not any more, as many
// were led at once, or the agent ends.
func TestLeadsOverWholly(t *testing.T) {
	hostWithTunnels(t, func(ctx context.Context, a *Agent) error {
		d, _, err := visitsBy(ctx, t, a)
		if err != nil {
			return err
		}
		defer tunnel.Down(context.Background(), a.tunnelDir(), d.Tunnel.Name) //nolint:errcheck // it goes with the namespace
		end := d.Tunnel
		end.Local, end.Remote = netip.MustParseAddrPort("127.0.0.2:901"), netip.MustParseAddrPort("127.0.1.2:800")
		over, cancel := context.WithCancel(ctx)
		cancel()
		if err := a.placeEnd(over, *d, end); err != nil {
			return err
		}
		now, err := tunnel.Attach(ctx, a.tunnelDir(), d.Tunnel.Name)
		if err != nil || now.Local != end.Local || now.Remote != end.Remote || !tunnel.Exists(d.Tunnel.Name) {
			return fmt.Errorf("stands %+v: %w", now, err)
		}
		return a.detours.Remove(ctx, d.ID)
	})
}

// TestLeadsOverNobodysAsk: who gave up while others were led asks anew, with another end; a tunnel is not led to the one before.
func TestLeadsOverNobodysAsk(t *testing.T) {
	visitsByOneOfTwo(t, func(ctx context.Context, a *Agent, d *detour.Detour, up *tunnel.Tunnel) error {
		over, cancel := context.WithCancel(ctx)
		cancel()
		ask := LeadOver{netip.MustParseAddrPort("127.0.1.2:800"), netip.MustParseAddr("127.0.0.2")}
		_, asked := a.peerLeadOver(callFrom(t, "paris", d.ID, ask).WithContext(over))
		now, err := tunnel.Attach(ctx, a.tunnelDir(), d.Tunnel.Name)
		if !errors.Is(asked, context.Canceled) || err != nil || now.PID != up.PID || placed(a, d.ID).Tunnel.Local != d.Tunnel.Local {
			return fmt.Errorf("%w: stands %+v, written down %s: %w", asked, now, placed(a, d.ID).Tunnel.Local, err)
		}
		return a.detours.Remove(ctx, d.ID)
	})
}

// TestCarries: what comes through a tunnel is heard also where no echo does; of one through which nothing comes, neither is said.
func TestCarries(t *testing.T) {
	hostWithTunnels(t, func(ctx context.Context, a *Agent) error {
		private, public, err := tunnel.NewKey()
		if err != nil {
			return err
		}
		here, there := aTunnel(t, a, "gwt-00000001"), aTunnel(t, a, "gwt-00000002")
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
		if passes := carries(soon, here); passes != nothing { // an echo's answer takes the host's own way
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
		if passes := carries(ctx, here); passes != noEcho {
			return fmt.Errorf("echoes alone do not pass: %v", passes)
		}
		return nil
	})
}
