package address

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"godwit/cmd/guest/precedence"
	"godwit/internal/need"
	"godwit/netstate/dump"
	"godwit/netstate/mptcp"
	"godwit/vm/guest"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
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
	term := b.ready[nics[0].MAC].term
	b.expire(nics[0].MAC, term-1) // which was for something else
	if up, has := onNIC(t, "own0"); !up || has != 1 {
		t.Errorf("another's end: up %v, %d IPv4 addresses", up, has)
	}
	b.expire(nics[0].MAC, term)
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
	term = b.ready[nics[1].MAC].term
	if _, err := b.Configure(nics[1]); err != nil {
		t.Fatal(err)
	}
	b.expire(nics[1].MAC, term)
	if up, has := onNIC(t, "own1"); !up || has != 1 {
		t.Errorf("in use: up %v, %d IPv4 addresses", up, has)
	}
}

// TestReadyAgain: asked again for the same, a NIC stays ready, as it is, for as long again; what somebody took is made
// again.
func TestReadyAgain(t *testing.T) {
	next := twoNICs(t)[0]
	var b Book
	again := func() {
		t.Helper()
		if err := b.Ready(next); err != nil {
			t.Fatal(err)
		}
	}
	again()
	updates, done := make(chan netlink.AddrUpdate, 16), make(chan struct{})
	defer close(done)
	if err := netlink.AddrSubscribe(updates, done); err != nil {
		t.Fatal(err)
	}
	first := b.ready[next.MAC].term
	again()
	b.expire(next.MAC, first) // it was about to
	wantOn(t, "asked again", "own0", "10.8.0.10/32")
	for quiet := time.After(100 * time.Millisecond); ; {
		select {
		case u := <-updates:
			if u.LinkAddress.IP.Equal(next.Addrs[0].Addr().AsSlice()) { // others are the kernel's, link-local
				t.Errorf("asked again: %+v: its address was taken away and given back", u)
			}
			continue
		case <-quiet:
		}
		break
	}
	link, err := netlink.LinkByName("own0")
	if err != nil {
		t.Fatal(err)
	}
	for what, take := range map[string]func() error{
		"its address": func() error { return dropAddr(link, next.Addrs[0].Addr()) },
		"its rule":    func() error { return unlead(next.Addrs[0].Addr()) },
		"its routes":  func() error { return netlink.LinkSetDown(link) },
	} {
		if err := take(); err != nil {
			t.Fatal(err)
		}
		again()
		link, err := netlink.LinkByName("own0")
		if err != nil {
			t.Fatal(err)
		}
		if !stands(b.ready[next.MAC], link) {
			t.Errorf("%s was taken, and is not made again", what)
		}
	}
	b.expire(next.MAC, b.ready[next.MAC].term)
	wantOn(t, "after its end", "own0")
}

// TestPacketsComeFirst: what takes packets in comes first for a while where peers were just told of an address.
func TestPacketsComeFirst(t *testing.T) {
	if _, err := mptcp.Endpoints(); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { forgetEndpoints(t) })
	next := twoNICs(t)[0]
	next.Addrs, next.GatewayV6, next.Endpoint = next.Addrs[:1], netip.Addr{}, 3
	program, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "gw-first")
	if err := os.Symlink(program, path); err != nil {
		t.Fatal(err)
	}
	sleep := exec.Command(path, "60")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sleep.Process.Kill(); _ = sleep.Wait() })
	need.Started(t, sleep)
	nice := func() int {
		value, err := unix.Getpriority(unix.PRIO_PROCESS, sleep.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		return 20 - value
	}
	before, b := nice(), Book{receivers: precedence.Named("gw-first")}
	if err := b.Ready(next); err != nil {
		t.Fatal(err)
	}
	if got := nice(); got != before {
		t.Errorf("%d before it is configured, want %d", got, before)
	}
	if _, err := b.Configure(next); err != nil {
		t.Fatal(err)
	}
	if got := nice(); got >= before {
		t.Errorf("%d once it is, want less than %d", got, before)
	}
	b.receivers.Restore()
	if got := nice(); got != before {
		t.Errorf("%d in the end, want %d", got, before)
	}
	for _, err := range []error{b.Drop([]netip.Addr{next.Addrs[0].Addr()}), b.Ready(next), b.Tell(next.MAC)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	b.receivers.Restore() // it took long until the guest arrived
	if _, err := b.Configure(next); err != nil {
		t.Fatal(err)
	}
	if got := nice(); got >= before {
		t.Errorf("%d where they were told before it left, want less than %d", got, before)
	}
	b.receivers.Restore()
}

// TestReadyAfterAFailedHandover: a NIC whose address was taken back, by whichever way, is down, without it and its
// endpoint, and can be made ready for the next move; one by which everything goes stays.
func TestReadyAfterAFailedHandover(t *testing.T) {
	if _, err := mptcp.Endpoints(); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { forgetEndpoints(t) })
	next := twoNICs(t)[0]
	next.Endpoint = 3
	addrs := []netip.Addr{next.Addrs[0].Addr(), next.Addrs[1].Addr()}
	other := next
	other.Addrs = []netip.Prefix{netip.MustParsePrefix("10.77.0.10/24")}
	for what, takeBack := range map[string]func(b *Book) error{
		"retired": func(b *Book) error {
			return b.Retire(guest.Retire{Addrs: addrs, MAC: next.MAC, EndpointIDs: []uint8{3}})
		},
		"dropped": func(b *Book) error { return b.Drop(addrs) },
	} {
		var b Book
		for _, err := range []error{b.Ready(next), second(b.Configure(next)), takeBack(&b)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		wantOn(t, what, "own0")
		if up, _ := onNIC(t, "own0"); up {
			t.Errorf("%s: the NIC is up", what)
		}
		if left, err := mptcp.Endpoints(); err != nil || len(left) > 0 {
			t.Errorf("%s: endpoints %v, %v", what, left, err)
		}
		if err := b.Ready(other); err != nil {
			t.Fatal(err)
		}
		wantOn(t, what+", ready for the next move", "own0", "10.77.0.10/32")
		if err := b.Ready(guest.Configure{MAC: next.MAC}); err != nil {
			t.Fatal(err)
		}
	}
	var b Book
	next.Main = true
	for _, err := range []error{second(b.Configure(next)), b.Drop(addrs)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if up, _ := onNIC(t, "own0"); !up || b.strange(next.MAC) {
		t.Error("the NIC by which everything goes was taken for unused")
	}
}

func second(_ guest.Configured, err error) error { return err }

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
