package main

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/cmd/guest/address"
	"godwit/internal/need"
	"godwit/netstate/dump"
	"godwit/vm/guest"

	"github.com/vishvananda/netlink"
)

// clusterNode gives this guest the links and addresses of a node of a cluster: pods, and services on the first of them.
func clusterNode(t *testing.T, pods, services int) {
	t.Helper()
	need.Root(t)
	need.Program(t, "ip")
	var batch strings.Builder
	for i := range pods {
		fmt.Fprintf(&batch, "link add pod%d group 77 type veth peer name far%d\naddr add 10.77.%d.1/24 dev pod%d\n", i, i, i, i)
	}
	for i := range services {
		fmt.Fprintf(&batch, "addr add 10.96.%d.%d/32 dev pod0\n", i/250, i%250)
	}
	file := filepath.Join(t.TempDir(), "batch")
	if err := os.WriteFile(file, []byte(batch.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { exec.Command("ip", "link", "del", "group", "77").Run() })
	if out, err := exec.Command("ip", "-batch", file).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// atMost fails the test where something takes longer than so many lists of all addresses each time that it is tried: a
// busy machine may be slow in either. Tries count from 1.
func atMost(t *testing.T, times int, what string, do func(try int) error) {
	t.Helper()
	for try := 1; ; try++ {
		began := time.Now()
		if _, err := dump.Addrs(nil, netlink.FAMILY_ALL); err != nil {
			t.Fatal(err)
		}
		once := time.Since(began)
		began = time.Now()
		if err := do(try); err != nil {
			t.Fatal(err)
		}
		took := time.Since(began)
		if took <= time.Duration(times)*once {
			return
		}
		if try == 5 {
			t.Fatalf("%s took %v, and all addresses once %v", what, took, once)
		}
	}
}

// TestInfoOfANode: a guest that is a node of a cluster, with hundreds of links and thousands of addresses, lists them
// in about the time of one list, each address at its link; it drops an address in a few times as long.
func TestInfoOfANode(t *testing.T) {
	const pods, services = 100, 2000
	clusterNode(t, pods, services)
	var all []guest.NIC
	atMost(t, 25, "all NICs", func(int) (err error) {
		all, err = nics()
		return err
	})
	var book address.Book
	atMost(t, 50, "a drop", func(try int) error {
		return book.Drop([]netip.Addr{netip.MustParseAddr(fmt.Sprintf("10.77.%d.1", try)), netip.MustParseAddr("192.0.2.1")})
	})
	if left, err := dump.Addrs(nil, netlink.FAMILY_V4); err != nil || slices.ContainsFunc(left, func(a netlink.Addr) bool { return a.IP.String() == "10.77.1.1" }) {
		t.Errorf("it was not dropped, %v", err)
	}
	found := 0
	for _, nic := range all {
		var i int
		if n, _ := fmt.Sscanf(nic.Name, "pod%d", &i); n == 0 {
			continue
		}
		want := 1
		if found++; i == 0 {
			want += services
		}
		if len(nic.Addrs) != want || nic.Addrs[0] != netip.MustParsePrefix(fmt.Sprintf("10.77.%d.1/24", i)) {
			t.Errorf("%s has %d addresses, the first is %v", nic.Name, len(nic.Addrs), nic.Addrs[:1])
		}
	}
	if found != pods {
		t.Errorf("%d of %d links", found, pods)
	}
}
