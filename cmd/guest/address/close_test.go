package address

import (
	"net"
	"testing"
	"time"

	"godwit/internal/need"
	"godwit/vm/guest"

	"github.com/vishvananda/netlink"
)

// TestClose: of a machine that ends no NIC is up, and none comes up again.
func TestClose(t *testing.T) {
	need.Root(t)
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "end0"}, PeerName: "end1"}); err != nil {
		t.Fatal(err)
	}
	up := func(name string) bool {
		link, err := netlink.LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		return link.Attrs().Flags&net.FlagUp != 0
	}
	for _, name := range []string{"end0", "end1"} {
		link, err := netlink.LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		if name == "end0" {
			t.Cleanup(func() { netlink.LinkDel(link) })
		}
		if err := netlink.LinkSetUp(link); err != nil {
			t.Fatal(err)
		}
	}
	b := &Book{}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if up("end0") || up("end1") {
		t.Error("a NIC is up")
	}
	done := make(chan struct{})
	go func() { // for good, as the machine would
		defer close(done)
		b.Configure(guest.Configure{MAC: "52:54:00:00:99:09"})
	}()
	select {
	case <-done:
		t.Error("a NIC was configured after that")
	case <-time.After(50 * time.Millisecond):
	}
	b.mu.Unlock()
	<-done
}
