package ends

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/agent/agenttest"
	"godwit/agent/config"
	"godwit/agent/peer"
	"godwit/agent/talk"
	"godwit/internal/child"
	"godwit/internal/clock"
	"godwit/migration"
	"godwit/netstate/netns"
	"godwit/netstate/tunnel"
)

func TestMain(m *testing.M) {
	child.Dispatch() // tunnels of tests are processes of this program
	os.Exit(m.Run())
}

// host is one with a bridge, in a network namespace of its own.
func host(t *testing.T, do func(ctx context.Context, c *config.Config) error) {
	t.Helper()
	run, err := os.MkdirTemp("", "gwe") // short enough for a socket's name
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(run)
	err = netns.Do(agenttest.Bridged(t), func() error {
		if out, err := exec.CommandContext(t.Context(), "ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return do(t.Context(), &config.Config{Host: "rome", Run: run, Network: config.Network{Bridge: "br0"}})
	})
	if err != nil {
		t.Error(err)
	}
}

// TestEndOfFreeInnerAddresses: who answers with its end of a tunnel takes a port by which the inner addresses are nobody's
// on this host, and says so where there is none.
func TestEndOfFreeInnerAddresses(t *testing.T) {
	host(t, func(ctx context.Context, c *config.Config) error {
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
			end, err := Answering(c, "m-00000001", tunnel.WireGuard, here, there, private, nil)
			if err != nil {
				return err
			}
			own, peer := tunnel.InnerAddrs(end.Local, end.Remote)
			if half.Contains(own) || half.Contains(peer) || end.Remote != there {
				t.Errorf("the end %s to %s has the inner addresses %s and %s", end.Local, end.Remote, own, peer)
			}
		}
		offers, configs, err := OfferMemory(c, "m-00000001", []peer.Path{{Name: "a", Local: here}}, []int{1400}, []talk.PathTunnel{{End: there}}, nil)
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
			end, err := Answering(c, "m-00000001", tunnel.WireGuard, here, there, private, []netip.Prefix{netip.MustParsePrefix("169.254.128.0/18")})
			if err != nil {
				return err
			}
			if own, peer := tunnel.InnerAddrs(end.Local, end.Remote); own.As4()[2] < 192 || peer.As4()[2] < 192 {
				t.Errorf("the other host has the inner addresses %s and %s", own, peer)
			}
		}
		if _, err := Answering(c, "m-00000001", tunnel.WireGuard, here, there, private, []netip.Prefix{netip.MustParsePrefix("169.254.0.0/16")}); err == nil {
			t.Error("none is left at the other host, and there is an end")
		}
		if err := add("169.254.128.1/17"); err != nil {
			return err
		}
		var problem *migration.Problem
		if _, err := Answering(c, "m-00000001", tunnel.WireGuard, here, there, private, nil); !errors.As(err, &problem) || !strings.Contains(err.Error(), "those of device br0") {
			t.Errorf("where none is free: %v", err)
		}
		if end, err := Answering(c, "m-00000001", tunnel.VXLAN, here, there, private, nil); err == nil || end.Local.Port() != there.Port() {
			t.Errorf("vxlan, whose ports are the same: %v, %v", end, err)
		}
		return nil
	})
}

// TestBroughtUpAfterAStep: what two hosts agreed on is brought up though the clock of one was stepped ahead since, as
// by NTP soon after it booted.
func TestBroughtUpAfterAStep(t *testing.T) {
	host(t, func(ctx context.Context, c *config.Config) error {
		end := agenttest.Tunnel(t, Dir(c), "gwt-00000001")
		end.Lease = clock.Now().Add(-time.Hour)
		up, err := Up(ctx, end)
		if err != nil {
			return err
		}
		if Short(up.Lease) {
			t.Errorf("its lease ends at %v", up.Lease)
		}
		return tunnel.Down(ctx, end.Dir, end.Name)
	})
}

// TestFreePort: a port that is found is free, at an address that is ours.
func TestFreePort(t *testing.T) {
	at := netip.MustParseAddr("127.0.0.1")
	port, err := FreePort(at)
	if err != nil || port == 0 {
		t.Fatalf("%d, %v", port, err)
	}
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(at, port)))
	if err != nil {
		t.Fatalf("not free: %v", err)
	}
	conn.Close()
	if _, err := FreePort(netip.MustParseAddr("192.0.2.1")); err == nil { // TEST-NET-1, RFC 5737
		t.Error("a port at an address that is not ours")
	}
}

// TestName: a tunnel's device is named by the migration that made it, and by a hash, of the same length, where
// something else did.
func TestName(t *testing.T) {
	if name := Name("m-00c0ffee"); name != "gwt-00c0ffee" {
		t.Error(name)
	}
	long := Name("m-00c0ffee-oslo")
	if len(long) != len("gwt-00c0ffee") || !strings.HasPrefix(long, "gwt-") || long == Name("m-00c0ffee-rome") {
		t.Error(long)
	}
}

// TestAt: a host has its end where it is asked for, if guests' traffic gets to the other host by that, and else at its
// first uplink.
func TestAt(t *testing.T) {
	up := func(name, addr string) config.Uplink {
		return config.Uplink{Name: name, Address: netip.MustParseAddr(addr), Carries: "both"}
	}
	c := &config.Config{Uplinks: []config.Uplink{up("a", "192.0.2.1"), up("b", "198.51.100.1")}}
	n := config.Neighbour{Uplinks: []config.Uplink{up("a", "192.0.2.2"), up("b", "198.51.100.2")}}
	for asked, want := range map[string]string{"198.51.100.1": "198.51.100.1", "203.0.113.1": "192.0.2.1"} {
		if at, err := At(c, n, netip.MustParseAddr(asked)); err != nil || at.String() != want {
			t.Errorf("asked for %s: %s, %v, want %s", asked, at, err, want)
		}
	}
	if _, err := At(c, config.Neighbour{}, netip.Addr{}); err == nil {
		t.Error("no uplink leads there, and it has an end")
	}
}
