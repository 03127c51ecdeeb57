package care

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"godwit/agent/config"
	"godwit/migration"
	"godwit/vm/guest"
)

func holding(addrs ...string) (out []migration.Address) {
	for _, addr := range addrs {
		out = append(out, migration.Address{Prefix: netip.MustParsePrefix(addr)})
	}
	return out
}

// TestToDrop: what a guest was given again is its own, what is in use is left to it, and what is read of a list is held
// against what can be meant.
func TestToDrop(t *testing.T) {
	own, lent := netip.MustParseAddr("10.2.1.21"), netip.MustParseAddr("10.1.1.20")
	h := Held{Description: config.Description{Name: "web"}, Addresses: holding("10.1.1.20/24")}
	h.GiveUp(own, lent)
	h.GiveUp(own)
	if !slices.Equal(h.ToDrop, []netip.Addr{own, lent}) || !slices.Equal(h.LeftOver(), []netip.Addr{own}) {
		t.Errorf("%v, of which %v", h.ToDrop, h.LeftOver())
	}
	h = Held{Description: config.Description{Name: "web", Agent: config.AgentDHCP}, ToDrop: []netip.Addr{lent}, Addresses: holding("10.2.1.20/24", "10.3.1.20/24")}
	if left := h.LeftOver(); len(left) > 0 {
		t.Errorf("its spare NIC is in use, and would be unplugged for %v", left)
	}
	for want, all := range map[string][]netip.Addr{"one that is none": {own, {}}, "to be given up": make([]netip.Addr, migration.MostAddresses+1)} {
		if err := CheckToDrop(all); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := CheckToDrop(nil); err != nil {
		t.Error(err)
	}
}

// TestHanded: what a handover gave is marked by it, and belongs to the boot in which it was given.
func TestHanded(t *testing.T) {
	addrs := holding("10.2.1.20/24", "10.1.1.30/24")
	addrs[0].Handover = "m-00000002"
	h := Held{Addresses: addrs, Boot: "first"}
	if given, kept := h.Handed(); len(given) != 1 || len(kept) != 1 || kept[0] != addrs[1] || h.Kept() != addrs[1].Prefix.Addr() {
		t.Errorf("given %v, kept %v, %v", given, kept, h.Kept())
	}
	second := guest.Info{BootID: "second"}
	if boot := h.ComesIn(second); boot != "first" {
		t.Errorf("it has booted anew, was not given its address again, and goes on as in boot %q", boot)
	}
	h.Addresses[0].Handover = ""
	if given, _ := h.Handed(); len(given) > 0 || h.ComesIn(second) != "second" {
		t.Errorf("it has its own address: %v, boot %q", given, h.ComesIn(second))
	}
	if id := BootID(guest.Info{BootID: strings.Repeat("x", LongestBoot+1)}); id != "" {
		t.Errorf("a guest has the agent keep what it likes: %q", id)
	}
}

// TestStaysBy: epochs begin again where a guest is started or adopted, so that one of its name may have that of an
// earlier stay. A file of before has the epoch alone.
func TestStaysBy(t *testing.T) {
	begun := Begun(config.Description{Name: "web"}, "/run/godwit/guests/web-1")
	if begun.Epoch != 1 {
		t.Errorf("a guest that is started has epoch %d", begun.Epoch)
	}
	begun.Epoch = 2 // its first move was taken back
	for _, c := range []struct {
		held  Held
		id    string
		epoch uint64
		is    bool
	}{
		{Held{Epoch: 2, By: "m-00000001"}, "m-00000001", 2, true},
		{Held{Epoch: 3, By: "m-00000001"}, "m-00000001", 2, false},
		{Held{Epoch: 2, By: "m-00000002"}, "m-00000001", 2, false},
		{begun, "m-00000001", 2, false},
		{Held{Epoch: 2}, "m-00000001", 2, true},
		{Held{Epoch: 3}, "m-00000001", 2, false},
	} {
		if is := c.held.StaysBy(c.id, c.epoch); is != c.is {
			t.Errorf("epoch %d by %q, asked for %d by %s: %v", c.held.Epoch, c.held.By, c.epoch, c.id, is)
		}
	}
}
