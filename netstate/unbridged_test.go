package netstate_test

import (
	"testing"

	"godwit/netstate"
	"godwit/netstate/tunnel"
)

// TestClearOfATapThatLeftItsBridge: a tap that somebody took out of its bridge, as who configures a host's network anew
// does, has lost what the bridge knew of it: that is no reason to keep the rest of its guest's state for ever.
func TestClearOfATapThatLeftItsBridge(t *testing.T) {
	w := newWorld(t, tunnel.WireGuard)
	w.set("hb", abroad())
	w.IP("hb", "link set t1a nomaster")
	w.Do("hb", func() error { return netstate.Clear("web") })
	w.Do("hb", func() error {
		inv, err := netstate.Found()
		if len(inv.States) > 0 || len(inv.Stray) > 0 {
			t.Errorf("left: %v, stray %v", inv.States, inv.Stray)
		}
		return err
	})
}
