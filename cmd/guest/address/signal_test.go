package address

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"godwit/internal/need"
	"godwit/netstate/mptcp"
	"godwit/vm/guest"

	"github.com/vishvananda/netlink"
)

func TestMain(m *testing.M) { need.Namespace(m) }

// TestSignalMakesRoom: announcements of earlier moves fill the path manager's eight
// places; those with a port go first, then the oldest, and the newest stay. So does
// what others made there, also where there is no room then.
func TestSignalMakesRoom(t *testing.T) {
	for name, c := range map[string]struct {
		others    []uint8 // ids that are not ours
		ids, left []uint8
	}{
		"ours":              {nil, []uint8{5, 6}, []uint8{1, 2, 5, 6, 251, 252, 253, 254}},
		"the oldest is not": {[]uint8{250}, []uint8{5, 6}, []uint8{1, 2, 5, 6, 250, 252, 253, 254}},
		"one of ours":       {[]uint8{250, 251, 252, 253, 254, 1, 2}, []uint8{5}, []uint8{1, 2, 5, 250, 251, 252, 253, 254}},
		"none of ours":      {[]uint8{250, 251, 252, 253, 254, 255, 1, 2}, nil, []uint8{1, 2, 250, 251, 252, 253, 254, 255}},
	} {
		t.Run(name, func(t *testing.T) { signalInCrowd(t, c.others, c.ids, c.left) })
	}
}

// eightEndpoints are as many as there can be, on addresses whose packets a rule of ours leads, but for those with
// others' ids.
func eightEndpoints(t *testing.T, add func(string) netip.Prefix, others []uint8) {
	t.Cleanup(func() { forgetEndpoints(t) })
	for i := range uint8(mptcp.MaxEndpoints) {
		e := mptcp.Endpoint{ID: 250 + i, Addr: add(fmt.Sprintf("10.9.1.%d/32", i+1)).Addr(), Flags: mptcp.FlagSignal}
		if e.ID < 250 { // the ids began again
			e.ID++
		}
		if i == 5 {
			e.Port = 61007
		}
		if err := mptcp.AddEndpoint(e); err != nil {
			t.Fatal(err)
		}
		if slices.Contains(others, e.ID) {
			continue
		}
		if err := leadFrom(e.Addr, guest.FirstTable); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unlead(e.Addr); err != nil {
				t.Error(err)
			}
		})
	}
}

func signalInCrowd(t *testing.T, others, want, left []uint8) {
	need.Root(t)
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		t.Fatal(err)
	}
	add := func(addr string) netip.Prefix {
		prefix := netip.MustParsePrefix(addr)
		if err := netlink.AddrReplace(lo, &netlink.Addr{IPNet: ipNet(prefix)}); err != nil {
			t.Fatal(err)
		}
		return prefix
	}
	eightEndpoints(t, add, others)
	if err := mptcp.AddEndpoint(mptcp.Endpoint{ID: 77, Addr: add("10.9.1.99/32").Addr(), Flags: mptcp.FlagSignal}); err == nil {
		t.Fatal("the kernel took a ninth: this test shows nothing")
	} else {
		t.Log(err)
	}
	next := []netip.Prefix{add("10.9.2.1/32"), add("fd09::1/128")}
	for range 2 { // repeated, it changes nothing
		ids, err := new(Book).signal("lo", next, 5)
		if err != nil || !slices.Equal(ids, want) {
			t.Fatalf("ids %v, %v; want %v", ids, err, want)
		}
		endpoints, err := mptcp.Endpoints()
		if err != nil {
			t.Fatal(err)
		}
		var have []uint8
		for _, e := range endpoints {
			have = append(have, e.ID)
		}
		slices.Sort(have)
		if !slices.Equal(have, left) {
			t.Errorf("endpoints %v, want %v", have, left)
		}
	}
}
