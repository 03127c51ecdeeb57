package agent

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/agent/peer"
	"godwit/agent/probe"
)

// heardBy is an agent whose uplinks have those addresses.
func heardBy(t *testing.T, port uint16, addresses ...string) *Agent {
	t.Helper()
	dir := t.TempDir()
	ca, err := peer.NewFleetCA(dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := ca.Issue("paris", time.Now()); err != nil {
		t.Fatal(err)
	}
	c := &config.Config{Host: "paris", Port: port}
	for _, address := range addresses {
		c.Uplinks = append(c.Uplinks, config.Uplink{Name: "by-" + address, Address: netip.MustParseAddr(address)})
	}
	a := bareAgent(t, c)
	if a.id, err = peer.LoadIdentity(filepath.Join(dir, "ca.pem"), filepath.Join(dir, "paris.pem"), filepath.Join(dir, "paris.key")); err != nil {
		t.Fatal(err)
	}
	return a
}

// TestWhereNobodyCanListen: a port in use is an error that says what to do.
func TestWhereNobodyCanListen(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	udp, err := net.ListenPacket("udp", tcp.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	a := heardBy(t, netip.MustParseAddrPort(tcp.Addr().String()).Port(), "127.0.0.1")
	for what, err := range map[string]error{"probes": a.answerProbes(t.Context()), "peers": a.answerPeers(t.Context())} {
		if want := "name another by port, the same on all hosts"; err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "127.0.0.1") {
			t.Errorf("%s: %v; want %q", what, err, want)
		}
	}
}

// TestAddressesThatComeLater: an agent begins where a device has an uplink's address not yet, or that of metrics, says
// so, and is heard there as soon as one has it.
func TestAddressesThatComeLater(t *testing.T) {
	late := []string{"192.0.2.7", "2001:db8::7"}
	a := heardBy(t, peer.DefaultPort, append(late, "127.0.0.1")...)
	a.config.Metrics = "192.0.2.8:9470"
	var said bytes.Buffer
	a.log = slog.New(slog.NewTextHandler(&said, nil))
	inNamespace(t, func() error {
		ip := func(line string) {
			t.Helper()
			if out, err := exec.CommandContext(t.Context(), "ip", strings.Fields(line)...).CombinedOutput(); err != nil {
				t.Fatalf("ip %s: %v: %s", line, err, out)
			}
		}
		ip("link set lo up")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		scraped, err := a.listenMetrics(ctx)
		if err != nil {
			return err
		}
		defer scraped.Close()
		if err := a.answerProbes(ctx); err != nil {
			return err
		}
		if err := a.answerPeers(ctx); err != nil {
			return err
		}
		a.warnOfHost()
		for _, address := range append(late, "192.0.2.8:9470") {
			if n := strings.Count(said.String(), address); n == 0 {
				t.Errorf("%s is not named: %s", address, said.String())
			}
		}
		for _, address := range append(late, "192.0.2.8") {
			ip("address add " + address + " dev lo")
		}
		reached := func(at netip.AddrPort) {
			t.Helper()
			conn, err := net.DialTimeout("tcp", at.String(), 5*time.Second)
			if err != nil {
				t.Error(err)
				return
			}
			conn.Close()
		}
		for _, u := range a.config.Uplinks {
			at := netip.AddrPortFrom(u.Address, a.config.Port)
			reached(at)
			for _, port := range []uint16{at.Port(), a.probes.LikeTunnels(u.Address)} {
				if _, err := probe.RoundTrip(ctx, u.Address, netip.AddrPortFrom(u.Address, port), a.probes.Token(), probe.Least); err != nil {
					t.Error(err)
				}
			}
		}
		reached(netip.MustParseAddrPort(a.config.Metrics))
		return nil
	})
}
