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

	"github.com/vishvananda/netlink"
)

// clusterNode gives this guest the links and addresses of a node of a cluster: pods, and services on the first of them.
func clusterNode(t *testing.T, pods, services int) {
	t.Helper()
	need.Root(t)
	need.Program(t, "ip")
	var batch strings.Builder
	for i := range pods {
		fmt.Fprintf(&batch, "link add pod%d type veth peer name far%d\naddr add 10.77.%d.1/24 dev pod%d\n", i, i, i, i)
	}
	for i := range services {
		fmt.Fprintf(&batch, "addr add 10.96.%d.%d/32 dev pod0\n", i/250, i%250)
	}
	file := filepath.Join(t.TempDir(), "batch")
	if err := os.WriteFile(file, []byte(batch.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for i := range pods {
			exec.Command("ip", "link", "del", fmt.Sprintf("pod%d", i)).Run()
		}
	})
	if out, err := exec.Command("ip", "-batch", file).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// TestInfoOfANode: a guest that is a node of a cluster, with hundreds of links and thousands of addresses, lists them in about the
// time of one list, each address at its link; it drops an address in a few times as long.
func TestInfoOfANode(t *testing.T) {
	const pods, services = 100, 2000
	clusterNode(t, pods, services)
	began := time.Now()
	if _, err := dump.Addrs(nil, netlink.FAMILY_ALL); err != nil {
		t.Fatal(err)
	}
	once := time.Since(began)
	began = time.Now()
	all, err := nics()
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 25*once {
		t.Errorf("%d NICs took %v, and all addresses once %v", len(all), took, once)
	}
	began = time.Now()
	var book address.Book
	if err := book.Drop([]netip.Addr{netip.MustParseAddr("10.77.1.1"), netip.MustParseAddr("192.0.2.1")}); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 50*once {
		t.Errorf("a drop took %v, and all addresses once %v", took, once)
	}
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
