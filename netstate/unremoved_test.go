package netstate_test

import (
	"testing"

	"godwit/netstate"
	"godwit/netstate/netns"
)

// TestUnremoved: what could not be removed is not forgotten: the next Set removes it.
func TestUnremoved(t *testing.T) {
	w := newWorld(t, "wireguard")
	w.set("ha", home(true))
	fewer := home(true)
	fewer.Away = fewer.Away[:1]
	// A value that the kernel does not take stands for all that may fail.
	w.Run("ha", "sh", "-ec", `was=$(nft -a list chain bridge godwit remember | grep 'neigh/br-guest/proxy_delay=' | grep ipv6)
		nft replace rule bridge godwit remember handle ${was##* } counter comment '"sysctl ipv6/neigh/br-guest/proxy_delay=none"'`)
	if err := netns.Do(w.Name("ha"), func() error { return netstate.Set(fewer) }); err == nil {
		t.Fatal("nothing failed")
	}
	proxies := func() string { return w.Run("ha", "ip", "-6", "neigh", "show", "proxy") }
	w.Run("ha", "ip", "-6", "neigh", "add", "proxy", guest6.String(), "dev", "br-guest", "protocol", "0x67") // as if that had failed
	w.set("ha", fewer)
	if got := proxies(); got != "" {
		t.Errorf("still there: %s", got)
	}
	w.Do("ha", func() error {
		inv, err := netstate.Found()
		if len(inv.Stray) > 0 || len(inv.States["web"].Away) != 1 {
			t.Errorf("found %v, stray %v", inv.States["web"].Away, inv.Stray)
		}
		return err
	})
}
