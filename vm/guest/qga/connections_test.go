package qga

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"godwit/internal/need"
	"godwit/vm/guest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// TestConnections: one line a connection, whatever its subflows are.
func TestConnections(t *testing.T) {
	port := netip.MustParseAddrPort
	table := sockets{
		tcp: []socket{
			{"ESTAB", port("10.1.1.10:80"), port("10.9.1.2:4001"), "aa", 0, false},
			{"ESTAB", port("10.2.1.10:80"), port("10.9.1.2:4002"), "aa", 0, false},
			{"ESTAB", port("10.1.1.10:22"), port("10.9.1.3:5000"), "", 0, false},
			{"TIME-WAIT", port("10.1.1.10:22"), port("10.9.1.3:5001"), "", 0, false},
			{"SYN-RECV", port("10.1.1.10:80"), port("10.9.1.2:4005"), "", 0, false}, // of a join before it is a subflow, or of whatever
			{"SYN-RECV", port("10.1.1.10:80"), port("10.9.1.2:4006"), "", 0, false},
			{"ESTAB", port("10.2.1.10:22"), port("10.9.1.3:5002"), "", 0, false},
			{"ESTAB", port("10.2.1.10:80"), port("10.9.1.4:4007"), "0b", 0, false}, // its first end is no subflow's any more
			{"ESTAB", port("10.2.1.10:80"), port("10.9.1.4:4008"), "0c", 0, false},
		},
		multipath: []socket{
			{"ESTAB", port("10.1.1.10:80"), port("10.9.1.2:4001"), "aa", 0, false},
			{"ESTAB", port("10.1.1.10:80"), port("10.9.1.4:4003"), "b", 0, false},
			{"ESTAB", port("10.2.1.10:80"), port("10.9.1.4:4008"), "c", 0, false},
		},
		udp: []socket{{"ESTAB", port("10.1.1.10:53"), port("10.9.1.3:6000"), "", 0, false}},
	}
	want := []guest.Connection{
		{Kind: guest.KindMPTCP, Local: port("10.1.1.10:80"), Remote: port("10.9.1.2:4001"), State: "ESTAB",
			Working: []netip.AddrPort{port("10.1.1.10:80"), port("10.2.1.10:80")}},
		{Kind: guest.KindTCP, Local: port("10.1.1.10:22"), Remote: port("10.9.1.3:5000"), State: "ESTAB"},
		{Kind: guest.KindMPTCP, Local: port("10.1.1.10:80"), Remote: port("10.9.1.4:4003"), State: "ESTAB", Working: []netip.AddrPort{port("10.2.1.10:80")}},
		{Kind: guest.KindUDP, Local: port("10.1.1.10:53"), Remote: port("10.9.1.3:6000")},
	}
	got := table.connections([]netip.Addr{netip.MustParseAddr("10.1.1.10")})
	if diff := cmp.Diff(want, got.List, cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
		t.Error(diff)
	}
	if users := table.users([]netip.Addr{netip.MustParseAddr("10.1.1.10")}); users.MPTCP != 1 || users.TCP != 3 || users.Opening != 2 || users.UDP != 1 {
		t.Errorf("%+v: want one of each, and two handshakes, which are told from plain TCP", users)
	}
}

// beforeMove and afterMove are TCP sockets of a guest around a move, in an order that ss may have them in: a connection
// of a client with two addresses, one that stayed behind, one whose subflows are gone, one that fell back. multipath
// are its MPTCP connections, both times.
const (
	beforeMove = `ESTAB 10.1.1.10:80 10.9.2.2:50737 token:0a(id:1)/0000aa01(id:0) rtt:1/1
ESTAB 10.1.1.10:80 10.9.1.2:4001 token:0a(id:0)/0000aa01(id:0) rtt:1/1
ESTAB 10.1.1.10:80 10.9.1.3:4002 token:0b(id:0)/bb(id:0) rtt:1/1
ESTAB 10.1.1.10:80 10.9.1.4:4003 token:0c(id:0)/cc(id:0) rtt:1/1
ESTAB 10.1.1.10:80 10.9.1.5:4004 token:0000(id:0)/0000(id:0) rtt:1/1
`
	afterMove = `ESTAB 10.2.1.10:80 10.9.2.2:50999 token:0a(id:1)/0000aa01(id:3) rtt:1/1
ESTAB 10.1.1.10:80 10.9.3.3:5002 token:0b(id:1)/bb(id:0) rtt:1/1
ESTAB 10.1.1.10:80 10.9.1.3:4002 token:0b(id:0)/bb(id:0) rtt:1/1
ESTAB 10.1.1.10:80 10.9.1.5:4004 token:0000(id:0)/0000(id:0) rtt:1/1
`
	multipath = `LISTEN 0.0.0.0:80 0.0.0.0:* - -
ESTAB 10.1.1.10:80 10.9.1.2:4001 token:0/aa01 -
ESTAB 10.1.1.10:80 10.9.1.3:4002 token:0/bb -
ESTAB 10.1.1.10:80 10.9.1.4:4003 token:0/cc -
ESTAB 10.1.1.10:80 10.9.1.5:4004 token:0/dd -
`
)

// TestConnectionsByTheirBegin: a connection is the same one after a move, whatever subflows it has there.
func TestConnectionsByTheirBegin(t *testing.T) {
	port := netip.MustParseAddrPort
	type one struct{ kind, local, remote string }
	began := []one{
		{guest.KindMPTCP, "10.1.1.10:80", "10.9.1.2:4001"},
		{guest.KindMPTCP, "10.1.1.10:80", "10.9.1.3:4002"},
		{guest.KindMPTCP, "10.1.1.10:80", "10.9.1.4:4003"},
		{guest.KindTCP, "10.1.1.10:80", "10.9.1.5:4004"},
	}
	addrs := []netip.Addr{netip.MustParseAddr("10.1.1.10"), netip.MustParseAddr("10.2.1.10")}
	var last guest.Connections
	for _, text := range []string{beforeMove, afterMove} {
		table, err := parseSockets(text + "udp\nmptcp\n" + multipath)
		if err != nil {
			t.Fatal(err)
		}
		last = table.connections(addrs)
		var got []one
		for _, c := range last.List {
			got = append(got, one{c.Kind, c.Local.String(), c.Remote.String()})
		}
		less := func(a, b one) bool { return a.remote < b.remote }
		if diff := cmp.Diff(began, got, cmp.AllowUnexported(one{}), cmpopts.SortSlices(less)); diff != "" {
			t.Error(diff)
		}
	}
	working := map[string][]netip.AddrPort{}
	for _, c := range last.List {
		working[c.Remote.String()] = c.Working
	}
	want := map[string][]netip.AddrPort{"10.9.1.2:4001": {port("10.2.1.10:80")}, "10.9.1.3:4002": {port("10.1.1.10:80"), port("10.1.1.10:80")},
		"10.9.1.4:4003": nil, "10.9.1.5:4004": nil}
	if diff := cmp.Diff(want, working, cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
		t.Error("after the move: " + diff)
	}
}

// TestMultipathScript: what ss has of MPTCP connections is read by every awk, and a guest that cannot tell them says
// that.
func TestMultipathScript(t *testing.T) {
	need.Program(t, "awk")
	const listed = `echo 'LISTEN 0      128    0.0.0.0:80   0.0.0.0:*    '
echo 'ESTAB  834    0      [::ffff:10.1.1.10]:80 [::ffff:10.9.1.2]:4001 subflows_max:2 remote_key token:e7573658 write_seq:b7a9'`
	for _, awk := range []string{"awk", "busybox", "gawk", "mawk", "original-awk"} {
		at, err := exec.LookPath(awk)
		if err != nil {
			t.Logf("no %s here", awk)
			continue
		}
		for ss, want := range map[string]sockets{
			listed: {multipath: []socket{{state: "ESTAB", local: netip.MustParseAddrPort("10.1.1.10:80"), remote: netip.MustParseAddrPort("10.9.1.2:4001"), token: "e7573658"}}},
			"echo 'ss: invalid option' >&2; exit 255": {unlisted: true},
			"exit 0": {unlisted: true},
		} {
			dir := t.TempDir()
			if err := errors.Join(os.Symlink(at, filepath.Join(dir, "awk")), os.WriteFile(filepath.Join(dir, "ss"), []byte("#!/bin/sh\n"+ss+"\n"), 0o755)); err != nil {
				t.Fatal(err)
			}
			script := exec.Command("/bin/sh", "-c", "set -e"+multipathScript)
			script.Env = []string{"PATH=" + dir}
			out, err := script.Output()
			if err != nil {
				t.Errorf("%s: %v", awk, err)
			}
			got, err := parseSockets(string(out))
			if err != nil || got.unlisted != want.unlisted || !slices.Equal(got.multipath, want.multipath) {
				t.Errorf("%s, %q: %+v, %v, want %+v", awk, ss, got, err, want)
			}
		}
	}
}
