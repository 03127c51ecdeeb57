package address

import (
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"godwit/netstate/dump"
	"godwit/vm/guest"

	"github.com/vishvananda/netlink"
)

// v4On are a NIC's IPv4 addresses.
func v4On(t *testing.T, name string) (addrs []string) {
	t.Helper()
	link, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	all, err := dump.Addrs(link, netlink.FAMILY_V4)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		addrs = append(addrs, a.IPNet.String())
	}
	return addrs
}

func wantOn(t *testing.T, what, name string, want ...string) {
	t.Helper()
	if has := v4On(t, name); !slices.Equal(has, want) {
		t.Errorf("%s: %s has %v, want %v", what, name, has, want)
	}
}

// givenUp leaves a NIC ready for p, by a program that ended then.
func givenUp(t *testing.T, p guest.Configure) {
	t.Helper()
	var ended Book
	if err := ended.Ready(p); err != nil {
		t.Fatal(err)
	}
	ended.ready[p.MAC].close()
}

// TestStartedAgain: what a NIC was made ready for by a program that was started again since, goes when the
// move is given up, or another is made, and its address is never answered for.
func TestStartedAgain(t *testing.T) {
	nics := twoNICs(t)
	next, other := nics[0], nics[0]
	other.Addrs = []netip.Prefix{netip.MustParsePrefix("10.8.0.77/24")}
	unled := func(what string) {
		t.Helper()
		for _, prefix := range next.Addrs[:1] {
			if rules, err := rulesFrom(prefix.Addr()); err != nil || len(rules) > 0 {
				t.Errorf("%s: rules from %s: %v, %v", what, prefix, rules, err)
			}
		}
	}
	for what, then := range map[string]func(b *Book) error{
		"given up":         func(b *Book) error { return b.Ready(guest.Configure{MAC: next.MAC}) },
		"for another move": func(b *Book) error { return b.Ready(other) },
		"another was made": func(b *Book) error { _, err := b.Configure(other); return err },
	} {
		givenUp(t, next)
		var b Book
		if err := then(&b); err != nil {
			t.Fatal(err)
		}
		up, _ := onNIC(t, "own0")
		switch what {
		case "given up":
			wantOn(t, what, "own0")
		case "for another move":
			wantOn(t, what, "own0", "10.8.0.77/32")
		default:
			wantOn(t, what, "own0", "10.8.0.77/24")
		}
		if up != (what != "given up") {
			t.Errorf("%s: up %v", what, up)
		}
		unled(what)
		if err := b.Drop([]netip.Addr{other.Addrs[0].Addr()}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStartedAgainTheSame: a move whose guest's program was started again after it was ready goes on.
func TestStartedAgainTheSame(t *testing.T) {
	next := twoNICs(t)[0]
	givenUp(t, next)
	var b Book
	if err := b.Ready(next); err != nil {
		t.Fatal(err)
	}
	wantOn(t, "ready again", "own0", "10.8.0.10/32")
	if err := b.Ready(guest.Configure{MAC: next.MAC}); err != nil {
		t.Fatal(err)
	}
	wantOn(t, "given up", "own0")
	givenUp(t, next)
	var again Book
	if _, err := again.Configure(next); err != nil {
		t.Fatal(err)
	}
	wantOn(t, "configured", "own0", "10.8.0.10/24")
}

// TestStartedAgainInUse: a program that was started again takes nothing of a NIC in use, and nothing that others gave one.
func TestStartedAgainInUse(t *testing.T) {
	nics := twoNICs(t)
	var ended Book
	active := nics[0]
	active.Main = true
	for _, c := range []guest.Configure{active, nics[1]} {
		if _, err := ended.Configure(c); err != nil {
			t.Fatal(err)
		}
	}
	old := nics[0].Addrs[0].Addr()
	retire := guest.Retire{Addrs: []netip.Addr{old}, MAC: nics[0].MAC, NewMAC: nics[1].MAC, Keep: true}
	if err := ended.Retire(retire); err != nil { // it lingers
		t.Fatal(err)
	}
	spare, err := netlink.LinkByName("own0")
	if err != nil {
		t.Fatal(err)
	}
	if err := addAddr(spare, netip.MustParsePrefix("192.0.2.7/24")); err != nil { // a person's
		t.Fatal(err)
	}
	var b Book
	for _, nic := range nics {
		if err := b.Ready(guest.Configure{MAC: nic.MAC}); err != nil {
			t.Fatal(err)
		}
	}
	wantOn(t, "the spare NIC", "own0", "10.8.0.10/32", "192.0.2.7/24")
	wantOn(t, "the active NIC", "own1", "10.8.1.10/24", "10.8.0.10/32")
	for _, name := range []string{"own0", "own1"} {
		if up, _ := onNIC(t, name); !up {
			t.Errorf("%s is down", name)
		}
	}
	if rules, err := rulesFrom(old); err != nil || len(rules) != 1 {
		t.Errorf("rules from an address that is kept: %v, %v", rules, err)
	}
}

// TestSpareInUse: a NIC to which a person gave an address serves that while a move is made ready, and after it came to
// nothing.
func TestSpareInUse(t *testing.T) {
	next := twoNICs(t)[0]
	spare, err := netlink.LinkByName("own0")
	if err != nil {
		t.Fatal(err)
	}
	if err := addAddr(spare, netip.MustParsePrefix("192.0.2.7/24")); err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(spare); err != nil {
		t.Fatal(err)
	}
	var b Book
	serves := func(when string, want ...string) {
		t.Helper()
		wantOn(t, when, "own0", want...)
		up, _ := onNIC(t, "own0")
		answers, err := os.ReadFile(answersOf("own0"))
		if !up || err != nil || strings.TrimSpace(string(answers)) == answersNobody {
			t.Errorf("%s: up %v, answers as of arp_ignore %s, %v", when, up, answers, err)
		}
	}
	if err := b.Ready(next); err != nil {
		t.Fatal(err)
	}
	serves("made ready", "192.0.2.7/24")
	if err := b.Ready(guest.Configure{MAC: next.MAC}); err != nil {
		t.Fatal(err)
	}
	serves("given up", "192.0.2.7/24")
	for range 2 {
		if err := b.Ready(next); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Configure(next); err != nil {
		t.Fatal(err)
	}
	serves("configured", "192.0.2.7/24", "10.8.0.10/24")
}
