package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"godwit/agent/agenttest"
	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/ends"
	"godwit/agent/guests"
	"godwit/internal/clock"
	"godwit/internal/need"
	"godwit/netstate"
	"godwit/netstate/netns"
	"godwit/netstate/tunnel"
)

// hostWithTunnels is an agent in a namespace of its own, with a bridge.
func hostWithTunnels(t *testing.T, do func(ctx context.Context, a *Agent) error) {
	a := bareAgent(t, &config.Config{Host: "rome", Network: config.Network{Bridge: "br0"}})
	var err error
	if a.config.Run, err = os.MkdirTemp("", "gwa"); err != nil { // short enough for a socket's name
		t.Fatal(err)
	}
	defer os.RemoveAll(a.config.Run)
	if a.detours, err = detour.Load(a.config.StatePath("detours.json"), a.config.Network); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	a.ctx = ctx
	defer a.actors.Wait()
	defer cancel()
	inNamespace(t, func() error {
		for _, line := range []string{"link set lo up", "link add br0 type bridge", "link set br0 up", "tuntap add t1 mode tap", "link set t1 master br0 up"} {
			if out, err := exec.CommandContext(t.Context(), "ip", strings.Fields(line)...).CombinedOutput(); err != nil {
				return fmt.Errorf("ip %s: %w: %s", line, err, out)
			}
		}
		return do(ctx, a)
	})
}

// visitsByTunnel has guest web here, with an address that it came with, and returns its leased detour, whose tunnel is
// not up yet.
func visitsByTunnel(t *testing.T, a *Agent) *detour.Detour {
	t.Helper()
	underCare(t, a.guests, "web", guests.New(care.Held{Description: config.Description{Name: "web"}}, nil))
	mac, _ := net.ParseMAC("52:54:00:00:01:0a")
	return &detour.Detour{
		ID: "m-00000001", Guest: "web", Peer: "paris", Leased: true, Up: clock.Now(),
		Tunnel: agenttest.Tunnel(t, ends.Dir(a.config), "gwt-00000001"), Taps: []string{"t1"},
		Visiting: []netstate.Visiting{{Addr: netip.MustParseAddr("10.1.1.5"), MAC: mac, Taps: []string{"t1"}, Tunnel: "gwt-00000001"}},
	}
}

// visitsBy is visitsByTunnel with its tunnel up, and written down.
func visitsBy(ctx context.Context, t *testing.T, a *Agent) (*detour.Detour, *tunnel.Tunnel, error) {
	d := visitsByTunnel(t, a)
	up, err := tunnel.Up(ctx, d.Tunnel)
	if err != nil {
		return nil, up, err
	}
	return d, up, a.detours.Change("web", func(all map[string]*detour.Detour) { all[d.ID] = d })
}

// TestTunnelOfAKilledProcess stands again where the guest lives, with what led into it, and not after
// its detour has ended.
func TestTunnelOfAKilledProcess(t *testing.T) {
	hostWithTunnels(t, func(ctx context.Context, a *Agent) error {
		d, up, err := visitsBy(ctx, t, a)
		if err != nil {
			return err
		}
		defer tunnel.Down(context.Background(), ends.Dir(a.config), d.Tunnel.Name) //nolint:errcheck // it goes with the namespace
		routes := func() string {
			out, _ := exec.CommandContext(t.Context(), "ip", "-4", "route", "show", "table", "all", "dev", "gwt-00000001").CombinedOutput()
			return string(out)
		}
		led := routes()
		if err := syscall.Kill(up.PID, syscall.SIGKILL); err != nil {
			return err
		}
		waitFor(t, "its device is gone", func() bool { return !tunnel.Exists(d.Tunnel.Name) })
		if err := a.lookAfter(ctx, *d); err != nil {
			return err
		}
		again, err := tunnel.Attach(ctx, ends.Dir(a.config), d.Tunnel.Name)
		if err != nil || again.PID == up.PID || again.PeerKey != up.PeerKey || routes() != led {
			return fmt.Errorf("%+v, %w; leads %q, before %q", again, err, routes(), led)
		}
		if err := a.detours.Remove(ctx, d.ID); err != nil {
			return err
		}
		if err := a.lookAfter(ctx, *d); err != nil || tunnel.Exists(d.Tunnel.Name) {
			return fmt.Errorf("after its end: exists %v, %w", tunnel.Exists(d.Tunnel.Name), err)
		}
		return nil
	})
}

// stateFull has nothing be written into the agent's STATE any more, as on a disk that is full.
func stateFull(t *testing.T, a *Agent) {
	t.Helper()
	if err := errors.Join(os.RemoveAll(a.config.State), os.WriteFile(a.config.State, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
}

// TestTunnelStandsAgainUnwritten: nor does a tunnel that has lost its process wait for a disk, or its other end go on
// with keys that this one does not have.
func TestTunnelStandsAgainUnwritten(t *testing.T) {
	hostWithTunnels(t, func(ctx context.Context, a *Agent) error {
		d := visitsByTunnel(t, a)
		defer tunnel.Down(context.Background(), ends.Dir(a.config), d.Tunnel.Name) //nolint:errcheck // it goes with the namespace
		if _, err := bereaved(ctx, a, d); err != nil {
			return err
		}
		waitFor(t, "its device is gone", func() bool { return !tunnel.Exists(d.Tunnel.Name) })
		stateFull(t, a)
		if err := a.restoreTunnel(ctx, d.ID); err != nil || !tunnel.Exists(d.Tunnel.Name) {
			return fmt.Errorf("stands %v: %w", tunnel.Exists(d.Tunnel.Name), err)
		}
		return nil
	})
}

// TestTunnelThatEndsWithinAMigration stands again as soon as a guest is reached by it, though no lease keeps it yet:
// pages may follow the guest for minutes, and its home may have rebooted and not had the tunnel at once. Before that
// its migration turns back.
func TestTunnelThatEndsWithinAMigration(t *testing.T) {
	leads := func(active bool) func(*detour.Detour) {
		return func(d *detour.Detour) {
			d.Away = []netstate.Away{{Addr: netip.MustParseAddr("10.2.1.40"), MAC: d.Visiting[0].MAC, Tunnel: d.Tunnel.Name, Active: active,
				Gateway: netip.MustParseAddr("10.2.1.1"), Subnet: netip.MustParsePrefix("10.2.1.0/24")}}
			d.Visiting = nil
		}
	}
	for name, c := range map[string]struct {
		change func(*detour.Detour)
		again  bool
	}{
		"it runs here":     {func(*detour.Detour) {}, true},
		"it is waited for": {func(d *detour.Detour) { d.Visiting[0].Tap, d.Visiting[0].Waits = "t1", true }, false},
		"it was led away":  {leads(true), true},
		"it is to leave":   {leads(false), false},
		"it comes home here": {func(d *detour.Detour) {
			d.Visiting[0].Tunnel, d.Visiting[0].Gateway = "", netip.MustParseAddr("10.1.1.1")
		}, false},
	} {
		hostWithTunnels(t, func(ctx context.Context, a *Agent) error {
			d := visitsByTunnel(t, a)
			d.Leased = false
			c.change(d)
			a.incoming = map[string]*incoming{d.ID: {}}
			defer tunnel.Down(context.Background(), ends.Dir(a.config), d.Tunnel.Name) //nolint:errcheck // it goes with the namespace
			if _, err := bereaved(ctx, a, d); err != nil {
				return err
			}
			waitFor(t, "its device is gone", func() bool { return !tunnel.Exists(d.Tunnel.Name) })
			err := a.lookAfter(ctx, *d)
			if again := tunnel.Exists(d.Tunnel.Name); again != c.again {
				t.Errorf("%s: it stands again: %v, want %v", name, again, c.again)
			}
			return err
		})
	}
}

// TestTunnelOfAStoppedProcess goes on by the same, as soon as it is looked at.
func TestTunnelOfAStoppedProcess(t *testing.T) {
	hostWithTunnels(t, func(ctx context.Context, a *Agent) error {
		d, up, err := visitsBy(ctx, t, a)
		if err != nil {
			return err
		}
		defer tunnel.Down(context.Background(), ends.Dir(a.config), d.Tunnel.Name) //nolint:errcheck // it goes with the namespace
		need.Stop(t, up.PID)
		if err := a.lookAfter(ctx, *d); err != nil {
			return err
		}
		again, err := tunnel.Attach(ctx, ends.Dir(a.config), d.Tunnel.Name)
		if err != nil || again.PID != up.PID {
			return fmt.Errorf("%+v, %w", again, err)
		}
		return a.detours.Remove(ctx, d.ID)
	})
}

// bereaved has the tunnel of web's detour d come up, and ends its process, which it returns.
func bereaved(ctx context.Context, a *Agent, d *detour.Detour) (pid int, err error) {
	up, err := tunnel.Up(ctx, d.Tunnel)
	if err != nil {
		return 0, err
	}
	if err := a.detours.Change("web", func(all map[string]*detour.Detour) { all[d.ID] = d }); err != nil {
		return 0, err
	}
	return up.PID, syscall.Kill(up.PID, syscall.SIGKILL)
}

// TestTunnelWithoutAProcess is one that the kernel carries on: it gets another process, whose lease ends it.
func TestTunnelWithoutAProcess(t *testing.T) {
	hostWithTunnels(t, func(ctx context.Context, a *Agent) error {
		d := visitsByTunnel(t, a)
		d.Tunnel.Kind, d.Tunnel.Local = tunnel.VXLAN, netip.AddrPortFrom(d.Tunnel.Local.Addr(), d.Tunnel.Remote.Port())
		defer tunnel.Down(context.Background(), ends.Dir(a.config), d.Tunnel.Name) //nolint:errcheck // it goes with the namespace
		was, err := bereaved(ctx, a, d)
		if err != nil {
			return err
		}
		waitFor(t, "it has no process", func() bool { return tunnel.Orphaned(ctx, ends.Dir(a.config), d.Tunnel.Name) })
		for range 2 { // the second time it has one
			if err := a.lookAfter(ctx, *d); err != nil {
				return err
			}
			again, err := tunnel.Attach(ctx, ends.Dir(a.config), d.Tunnel.Name)
			if err != nil || again.PID == was || !again.Lease.After(clock.Now()) {
				return fmt.Errorf("%+v, %w", again, err)
			}
		}
		return a.detours.Remove(ctx, d.ID)
	})
}

// TestTunnelOfAGuestAtHome ends, when it has come home with nothing but what is at home there, and does not
// stand again.
func TestTunnelOfAGuestAtHome(t *testing.T) {
	hostWithTunnels(t, func(ctx context.Context, a *Agent) error {
		underCare(t, a.guests, "web", guests.New(care.Held{Description: config.Description{Name: "web"}}, nil))
		mac, _ := net.ParseMAC("52:54:00:00:01:0a")
		d := &detour.Detour{ID: "m-00000001", Guest: "web", Peer: "paris", Leased: true, Up: clock.Now(), Tunnel: agenttest.Tunnel(t, ends.Dir(a.config), "gwt-00000001"), Taps: []string{"t1"},
			Visiting: []netstate.Visiting{{Addr: netip.MustParseAddr("10.1.1.5"), MAC: mac, Taps: []string{"t1"}, Gateway: netip.MustParseAddr("10.1.1.1")}}}
		if _, err := tunnel.Up(ctx, d.Tunnel); err != nil {
			return err
		}
		defer tunnel.Down(context.Background(), ends.Dir(a.config), d.Tunnel.Name) //nolint:errcheck // it goes with the namespace
		if err := a.detours.Change("web", func(all map[string]*detour.Detour) { all[d.ID] = d }); err != nil {
			return err
		}
		for range 2 {
			if err := a.lookAfter(ctx, *d); err != nil {
				return err
			}
			if _, ok := a.detours.Get(d.ID); !ok || tunnel.Exists(d.Tunnel.Name) {
				return fmt.Errorf("the detour is there: %v, its tunnel %v; want it without", ok, tunnel.Exists(d.Tunnel.Name))
			}
		}
		return nil
	})
}

// TestTunnelMadeAnew: a tunnel that a detour's peer asks for anew does not stand again with the keys that
// it had, while that is made.
func TestTunnelMadeAnew(t *testing.T) {
	hostWithTunnels(t, func(ctx context.Context, a *Agent) error {
		before, anew := agenttest.Tunnel(t, ends.Dir(a.config), "gwt-00000001"), agenttest.Tunnel(t, ends.Dir(a.config), "gwt-00000001")
		d := detour.Detour{ID: "m-00000001-rome", Guest: "web", Peer: "oslo", Leased: true, Up: clock.Now(), Tunnel: before,
			Standing: []netstate.Away{{Addr: netip.MustParseAddr("10.1.1.5")}}}
		place(a, &d)
		a.making.Lock() // as peerRepoint does, and the tunnel is gone
		time.AfterFunc(300*time.Millisecond, func() {
			a.detours.Change("nobody", func(all map[string]*detour.Detour) { //nolint:errcheck // there is no such guest
				next := d
				next.Tunnel, all[d.ID] = anew, &next
			})
			a.making.Unlock()
		})
		if err := a.restoreTunnel(ctx, d.ID); err != nil {
			return err
		}
		if now, _ := a.detours.Get(d.ID); tunnel.Exists(before.Name) || now.Tunnel.PeerKey != anew.PeerKey {
			return fmt.Errorf("a tunnel stands: %v; noted with the key %v, want %v", tunnel.Exists(before.Name), now.Tunnel.PeerKey, anew.PeerKey)
		}
		return nil
	})
}

// inNamespace does it in a network namespace of its own.
func inNamespace(t *testing.T, do func() error) {
	t.Helper()
	need.Root(t)
	name := fmt.Sprintf("t-agent-%d", os.Getpid())
	if err := netns.Create(name); err != nil {
		t.Fatal(err)
	}
	defer netns.Delete(name) //nolint:errcheck // it goes with the machine
	if err := netns.Do(name, do); err != nil {
		t.Error(err)
	}
}
