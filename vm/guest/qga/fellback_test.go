package qga

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"godwit/internal/need"
	"godwit/vm/guest"
)

// listed is what ss 6.1 says of a guest that accepted an MPTCP connection, to which its client joined, and began
// others: one by MPTCP, which the peer has closed, two with peers that have no MPTCP, of which it has closed one on its
// side, and one that has no answer yet; and of plain connections: one that it has closed, and one of which the kernel
// sees to the end; and of MPTCP connections that fell back after their handshake; and of some that both ends have
// closed, plain and fallen back: with data that waits, and with nothing but a FIN. The first subflow of each connection
// has no token of the peer.
const listed = `LISTEN 0 128 10.1.1.10:80 0.0.0.0:* ino:30 sk:1 cgroup:/ <-> tcp-ulp-mptcp
ESTAB 0 0 10.1.1.10:80 10.9.1.2:4001 ino:31 sk:2 <-> tcp-ulp-mptcp flags:Mec token:0000(id:0)/3a0248d7(id:0) seq:1 cubic rtt:1/1
ESTAB 0 0 10.2.1.10:80 10.9.1.2:4002 ino:32 sk:3 <-> tcp-ulp-mptcp flags:Jjec token:5eed5eed(id:0)/3a0248d7(id:3) seq:1 cubic rtt:1/1
CLOSE-WAIT 0 0 10.1.1.10:5001 10.9.1.3:80 ino:33 sk:4 <-> tcp-ulp-mptcp flags:Mmec token:0000(id:0)/d088437e(id:0) seq:1 cubic rtt:1/1
ESTAB 0 0 10.1.1.10:5002 10.9.1.4:80 ino:34 sk:5 <-> tcp-ulp-mptcp flags:mc token:0000(id:0)/eb7154d5(id:0) seq:1 cubic rtt:1/1
FIN-WAIT-2 0 0 10.1.1.10:5003 10.9.1.4:80 ino:35 sk:6 <-> tcp-ulp-mptcp flags:mc token:0000(id:0)/2e3e4598(id:0) seq:1 cubic rtt:1/1
SYN-SENT 0 1 10.1.1.10:5004 10.9.1.5:80 timer:(on,1sec,0) ino:36 sk:7 <-> tcp-ulp-mptcp flags:m token:0000(id:0)/fda241ad(id:0) rtt:1/1
FIN-WAIT-2 0 0 10.2.1.10:80 10.9.1.6:4003 ino:37 sk:8 <-> tcp-ulp-mptcp flags:Jjec token:5eed5eed(id:0)/77e0c1d2(id:3) seq:1 cubic rtt:1/1
FIN-WAIT-2 0 0 10.1.1.10:80 10.9.1.7:4004 ino:38 sk:9 <-> cubic rtt:1/1
FIN-WAIT-2 0 0 10.1.1.10:80 10.9.1.7:4005 timer:(timewait,59sec,0) ino:0 sk:a <-> cubic rtt:1/1
LAST-ACK 0 3919872 10.1.1.10:80 10.9.1.9:4008 timer:(persist,360ms,0) ino:0 sk:h --- cubic rtt:1/1
LAST-ACK 0 1 10.1.1.10:80 10.9.1.10:4009 timer:(on,200ms,0) ino:0 sk:i --- cubic rtt:1/1
CLOSING 0 2 10.1.1.10:80 10.9.1.9:4010 timer:(on,200ms,0) ino:0 sk:j --- cubic rtt:1/1
CLOSING 0 1 10.1.1.10:80 10.9.1.10:4011 timer:(on,200ms,0) ino:0 sk:k --- cubic rtt:1/1
LAST-ACK 0 18849 10.1.1.10:5006 10.9.1.9:80 timer:(persist,360ms,0) ino:0 sk:l --- tcp-ulp-mptcp flags:mc token:0000(id:0)/ccc12645(id:0) seq:0 cubic rtt:1/1
LAST-ACK 0 1 10.1.1.10:5007 10.9.1.10:80 timer:(on,200ms,0) ino:0 sk:m --- tcp-ulp-mptcp flags:mc token:0000(id:0)/ccc12646(id:0) seq:0 cubic rtt:1/1
LAST-ACK 0 18849 10.1.1.10:80 10.9.1.11:4012 timer:(on,200ms,0) ino:0 sk:n --- tcp-ulp-mptcp flags:Mec token:0000(id:0)/ccc12647(id:0) seq:0 cubic rtt:1/1
`

// alsoListed is what ss says beside that of two connections that fell back after their handshake, one of which the
// guest has closed, where it lists MPTCP connections, too.
const alsoListed = `tcp ESTAB 0 0 10.1.1.10:80 10.9.1.8:4006 ino:39 sk:b <-> tcp-ulp-mptcp flags:Mec token:0000(id:0)/0ab12cd0(id:0) seq:1 cubic rtt:1/1
tcp FIN-WAIT-2 0 0 10.1.1.10:80 10.9.1.8:4007 ino:40 sk:c <-> tcp-ulp-mptcp flags:Mec token:0000(id:0)/c0ffee00(id:0) seq:1 cubic rtt:1/1
mptcp LISTEN 0 128 10.1.1.10:80 0.0.0.0:* ino:30 sk:d cgroup:/ <->
mptcp ESTAB 0 0 10.1.1.10:80 10.9.1.2:4001 ino:31 sk:e <-> subflows:1 subflows_max:2 remote_key token:3a0248d7 write_seq:1
mptcp ESTAB 0 0 10.1.1.10:80 10.9.1.8:4006 ino:39 sk:f <-> subflows_max:2 fallback remote_key token:ab12cd0 write_seq:1
mptcp FIN-WAIT-2 0 0 10.1.1.10:80 10.9.1.8:4007 ino:40 sk:g <-> subflows_max:2 fallback remote_key token:c0ffee00 write_seq:1
`

// TestFellBack: a connection of the guest's with a peer that has no MPTCP is a plain one, also once the guest has
// closed it on its side; the first subflow of one by MPTCP looks like it but for its flags. By every awk.
func TestFellBack(t *testing.T) {
	need.Program(t, "awk")
	for _, awk := range []string{"awk", "busybox", "gawk", "mawk", "original-awk"} {
		at, err := exec.LookPath(awk)
		if err != nil {
			t.Logf("no %s here", awk)
			continue
		}
		dir := t.TempDir()
		both := "tcp " + strings.ReplaceAll(strings.TrimSpace(listed), "\n", "\ntcp ") + "\n" + alsoListed
		ss := "#!/bin/sh\ncase $1 in *t*M*) [ ! -e " + filepath.Join(dir, "old") + " ] || { echo unrecognized option >&2; exit 1; }; cat <<'END'\n" + both + "END\n;; *t*) cat <<'END'\n" + listed + "END\nesac\n"
		cat, err := exec.LookPath("cat")
		if err := errors.Join(err, os.Symlink(cat, filepath.Join(dir, "cat")), os.Symlink(at, filepath.Join(dir, "awk")), os.WriteFile(filepath.Join(dir, "ss"), []byte(ss), 0o755)); err != nil {
			t.Fatal(err)
		}
		fellLater := []string{"10.9.1.8:4006", "10.9.1.8:4007"}
		for _, later := range [][]string{fellLater, nil} { // an ss that does not list MPTCP connections
			if later == nil {
				if err := os.WriteFile(filepath.Join(dir, "old"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			fellBack(t, awk, dir, later)
		}
	}
}

// fellBack checks what is made of what the ss in dir lists, where those connections fell back later.
func fellBack(t *testing.T, awk, dir string, later []string) {
	t.Helper()
	addrs := []netip.Addr{netip.MustParseAddr("10.1.1.10"), netip.MustParseAddr("10.2.1.10")}
	script := exec.Command("/bin/sh", "-c", socketScript)
	script.Env = []string{"PATH=" + dir}
	out, err := script.Output()
	if err != nil {
		t.Errorf("%s: %v", awk, err)
		return
	}
	table, err := parseSockets(string(out))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, one := range table.connections(addrs).List {
		got[one.Kind] = append(got[one.Kind], one.Remote.String())
	}
	want := map[string][]string{guest.KindMPTCP: {"10.9.1.2:4001", "10.9.1.3:80"}, guest.KindTCP: {"10.9.1.4:80", "10.9.1.4:80", "10.9.1.7:4004",
		"10.9.1.9:4008", "10.9.1.9:4010", "10.9.1.9:80"}}
	want[guest.KindTCP] = append(want[guest.KindTCP], later...)
	for kind, remotes := range want {
		if !slices.Equal(got[kind], remotes) {
			t.Errorf("%s: by %s are connected %v, want %v", awk, kind, got[kind], remotes)
		}
	}
	if users := table.users(addrs); users.MPTCP != len(want[guest.KindMPTCP]) || users.TCP != len(want[guest.KindTCP]) || users.Dialled != 1 {
		t.Errorf("%s: %+v, want what is listed", awk, users)
	}
	if behind := table.behind(addrs[:1], nil); len(behind) != 1 {
		t.Errorf("%s: %v have nothing but one address, want the one that was begun by MPTCP", awk, behind)
	}
}
