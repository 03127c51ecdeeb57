package agent

import (
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/agent/peer"
)

// TestWhereNobodyCanListen: a port in use and an address of nobody are told apart, each with what to do.
func TestWhereNobodyCanListen(t *testing.T) {
	dir := t.TempDir()
	ca, err := peer.NewFleetCA(dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := ca.Issue("paris", time.Now()); err != nil {
		t.Fatal(err)
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	port := netip.MustParseAddrPort(tcp.Addr().String()).Port()
	udp, err := net.ListenPacket("udp", tcp.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	for address, want := range map[string]string{"127.0.0.1": "name another by port, the same on all hosts", "192.0.2.7": "mend uplinks[].address"} {
		a := bareAgent(t, &config.Config{Host: "paris", Port: port, Uplinks: []config.Uplink{{Name: "public", Address: netip.MustParseAddr(address)}}})
		if a.id, err = peer.LoadIdentity(filepath.Join(dir, "ca.pem"), filepath.Join(dir, "paris.pem"), filepath.Join(dir, "paris.key")); err != nil {
			t.Fatal(err)
		}
		for what, err := range map[string]error{"probes": a.answerProbes(t.Context()), "peers": a.answerPeers(t.Context())} {
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), address) {
				t.Errorf("%s at %s: %v; want %q", what, address, err, want)
			}
		}
	}
}
