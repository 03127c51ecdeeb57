package address

import (
	"net"
	"os"
	"strings"
	"testing"

	"godwit/netstate/dump"

	"github.com/vishvananda/netlink"
)

// TestReadyEnds: what was made ready and never used goes by itself, once it is not another's; what is in use stays.
func TestReadyEnds(t *testing.T) {
	nics := twoNICs(t)
	var b Book
	_, has := onNIC(t, "own0")
	if has != 0 {
		t.Fatal("the NIC is not new")
	}
	if err := b.Ready(nics[0]); err != nil {
		t.Fatal(err)
	}
	if up, has := onNIC(t, "own0"); !up || has != 1 {
		t.Fatalf("ready: up %v, %d IPv4 addresses", up, has)
	}
	b.expire(nics[0].MAC, nics[1]) // which was for something else
	if up, has := onNIC(t, "own0"); !up || has != 1 {
		t.Errorf("another's end: up %v, %d IPv4 addresses", up, has)
	}
	b.expire(nics[0].MAC, nics[0])
	if up, has := onNIC(t, "own0"); up || has != 0 {
		t.Errorf("after its end: up %v, %d IPv4 addresses", up, has)
	}
	if rules, err := rulesFrom(nics[0].Addrs[0].Addr()); err != nil || len(rules) > 0 {
		t.Errorf("after its end: rules %v, %v", rules, err)
	}
	if arp, err := os.ReadFile(answersOf("own0")); err != nil || strings.TrimSpace(string(arp)) != answersForOwn {
		t.Errorf("after its end: arp_ignore %s, %v: the NIC answers nobody", arp, err)
	}
	if err := b.Ready(nics[1]); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Configure(nics[1]); err != nil {
		t.Fatal(err)
	}
	b.expire(nics[1].MAC, nics[1])
	if up, has := onNIC(t, "own1"); !up || has != 1 {
		t.Errorf("in use: up %v, %d IPv4 addresses", up, has)
	}
}

// onNIC says whether a NIC is up, and how many IPv4 addresses it has.
func onNIC(t *testing.T, name string) (up bool, addrs int) {
	t.Helper()
	link, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	all, err := dump.Addrs(link, netlink.FAMILY_V4)
	if err != nil {
		t.Fatal(err)
	}
	return link.Attrs().Flags&net.FlagUp != 0, len(all)
}
