package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/agent/peer"
)

// newFleet makes a CA with a certificate for each host, and returns its directory.
func newFleet(t *testing.T, hosts ...string) string {
	t.Helper()
	dir := t.TempDir()
	ca, err := peer.NewFleetCA(dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range hosts {
		if err := ca.Issue(host, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func papersOf(dir, host string) config.TLSFiles {
	return config.TLSFiles{CA: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, host+".pem"), Key: filepath.Join(dir, host+".key")}
}

// answersAt has an agent answer at addr, until the test ends.
func answersAt(t *testing.T, files config.TLSFiles, addr netip.AddrPort) {
	t.Helper()
	id, err := peer.LoadIdentity(files.CA, files.Cert, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { peer.Answer(w, nil, nil) })
	if err := peer.Serve(t.Context(), id, []netip.AddrPort{addr}, handler, func(*peer.Stream) {}, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
}

// TestDoctorAsksPeers: each path to each other host is tried, and what comes of it told. That one does not answer is a
// note; that one host does not believe the other is lacking.
func TestDoctorAsksPeers(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	port := netip.MustParseAddrPort(free.Addr().String()).Port()
	free.Close()
	at := func(addr string) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr(addr), port) }
	ours, theirs := newFleet(t, "rome", "oslo"), newFleet(t, "cairo")
	answersAt(t, papersOf(ours, "oslo"), at("127.0.0.2"))
	answersAt(t, papersOf(theirs, "cairo"), at("127.0.0.3"))
	up := func(addrs ...string) (all []config.Uplink) {
		for i, addr := range addrs {
			all = append(all, config.Uplink{Name: string(rune('a' + i)), Address: netip.MustParseAddr(addr), Carries: "both"})
		}
		return all
	}
	c := &config.Config{Host: "rome", Port: port, TLS: papersOf(ours, "rome"), Uplinks: up("127.0.0.1"), Peers: []config.Neighbour{
		{Host: "oslo", Uplinks: up("127.0.0.2", "127.0.0.4")}, {Host: "cairo", Uplinks: up("127.0.0.3")}, {Host: "lima", Uplinks: up("127.0.0.5")}, {Host: "quito", Uplinks: up("::2")},
	}}
	var out bytes.Buffer
	printFindings(&out, peers(t.Context(), c, fine("certificate", "")))
	for _, want := range []string{
		"ok    host oslo      path a-a (127.0.0.1 to 127.0.0.2): answers\n",
		"note  host oslo      path a-b (127.0.0.1 to 127.0.0.4): 127.0.0.4:",
		"LACK  host cairo     path a-a (127.0.0.1 to 127.0.0.3): ",
		"are both hosts' certificates of this fleet",
		"note  host lima      path a-a (127.0.0.1 to 127.0.0.5): 127.0.0.5:",
		": connection refused; its agent may not run yet",
		"note  host quito     no uplink of it that peers names is of the same family",
		"note  peers          UDP and tunnels were not tried: `godwit plan GUEST HOST` does",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	c.TLS = papersOf(ours, "rome")
	c.TLS.CA = filepath.Join(t.TempDir(), "ca.pem") // both fleets' are believed here, as during a renewal
	var both []byte
	for _, dir := range []string{ours, theirs} {
		one, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
		if err != nil {
			t.Fatal(err)
		}
		both = append(both, one...)
	}
	if err := os.WriteFile(c.TLS.CA, both, 0o600); err != nil {
		t.Fatal(err)
	}
	refused := peers(t.Context(), c, fine("certificate", ""))[3]
	looks(t, "does not believe us", refused, "LACK", "path a-a (127.0.0.1 to 127.0.0.3): remote error: tls: ")
	if n := strings.Count(refused.Text, "certificates of this fleet"); n != 1 {
		t.Errorf("what to look at is said %d times: %+v", n, refused)
	}
	c.TLS = papersOf(theirs, "cairo") // which oslo does not believe, and is not believed by it
	looks(t, "another fleet's here", peers(t.Context(), c, fine("certificate", ""))[1], "LACK", "certificate")
	looks(t, "no good certificate", peers(t.Context(), c, lack("certificate", "expired"))[0], "note", "not asked: the certificate comes first")
	c.Peers = nil
	looks(t, "no peers", peers(t.Context(), c, fine("certificate", ""))[0], "note", "none is named")
}

// TestDoctorOfPaths: what asking over a path came to, in words.
func TestDoctorOfPaths(t *testing.T) {
	c := &config.Config{Port: 7440}
	p := peer.Path{Name: "private-public", Local: netip.MustParseAddr("203.0.113.10"), Remote: netip.MustParseAddr("198.51.100.20")}
	const rule = "its packets leave by eth0, not by eth1: `ip rule add from 203.0.113.10 lookup N`, with the routes of eth1 in a table N"
	for name, c2 := range map[string]struct {
		tried       triedPath
		others      bool
		mark, words string
	}{
		"answers":           {triedPath{device: "eth1", leaves: "eth1"}, true, "ok", "path private-public (203.0.113.10 to 198.51.100.20): answers"},
		"answers elsewhere": {triedPath{device: "eth1", leaves: "eth0"}, true, "note", "answers; " + rule},
		"no device named":   {triedPath{leaves: "eth0"}, true, "ok", "answers"},
		"no way is known":   {triedPath{device: "eth1"}, true, "ok", "answers"},
		"silence":           {triedPath{err: context.DeadlineExceeded}, false, "note", "no answer from 198.51.100.20:7440: nothing comes back; is that host up, and do TCP and UDP 7440 pass both ways?"},
		"silence elsewhere": {triedPath{device: "eth1", leaves: "eth0", err: context.DeadlineExceeded}, false, "note", "nothing comes back; " + rule},
		"another answers":   {triedPath{err: context.DeadlineExceeded}, true, "note", "nothing comes back, and another path answers; where these two uplinks"},
		"not believed":      {triedPath{err: &tls.CertificateVerificationError{Err: errors.New("of another")}}, false, "LACK", "are both hosts' certificates of this fleet"},
		"one not believed":  {triedPath{err: &tls.CertificateVerificationError{Err: errors.New("of another")}}, true, "note", "of another, and another path answers: is 198.51.100.20 an address of that host?"},
		"no way":            {triedPath{err: syscall.ENETUNREACH}, false, "note", "no answer from 198.51.100.20:7440: network is unreachable; is that host up"},
		"no such address":   {triedPath{err: syscall.EADDRNOTAVAIL}, false, "note", "not tried: this host has no address 203.0.113.10"},
		"no agent":          {triedPath{err: errors.New("tls: first record\nis none")}, false, "note", "no answer from 198.51.100.20:7440: tls: first record is none; is"},
		"no time":           {triedPath{err: errNotTried}, true, "note", "not tried, as others took their time"},
	} {
		c2.tried.host, c2.tried.path = "sanjose", p
		looks(t, name, c2.tried.finding(c, c2.others), c2.mark, c2.words)
	}
}

// TestDoctorOfAVPN: between a VPN's uplink and another one there is no path, and no rule makes one; an uplink none of
// whose paths leaves by it lacks its rule.
func TestDoctorOfAVPN(t *testing.T) {
	public, vpn := netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("10.255.0.1")
	silent := context.DeadlineExceeded
	tried := func(local netip.Addr, device, leaves string, err error) triedPath {
		return triedPath{host: "oslo", path: peer.Path{Local: local}, device: device, leaves: leaves, err: err}
	}
	for name, c := range map[string]struct {
		all  []triedPath
		want []string
	}{
		"a VPN": {
			[]triedPath{tried(public, "eth0", "eth0", nil), tried(public, "eth0", "wg0", silent), tried(vpn, "wg0", "eth0", silent), tried(vpn, "wg0", "wg0", silent)},
			[]string{"eth0", "", "", ""},
		},
		"no rule": {[]triedPath{tried(public, "eth0", "eth0", nil), tried(vpn, "eth1", "eth0", silent), tried(vpn, "eth1", "eth0", nil)}, []string{"eth0", "eth0", "eth0"}},
		"answers": {[]triedPath{tried(vpn, "eth1", "eth1", nil), tried(vpn, "eth1", "eth0", nil)}, []string{"eth1", "eth0"}},
	} {
		var got []string
		for _, p := range onTheirWay(c.all) {
			got = append(got, p.leaves)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
