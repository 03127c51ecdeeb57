package netstate_test

import (
	"testing"

	"godwit/netstate/tunnel"
)

// TestStandsWithoutAChain: a chain of the guest's that somebody took away is missed, whichever it is, and put back.
func TestStandsWithoutAChain(t *testing.T) {
	w := newWorld(t, tunnel.WireGuard)
	w.set("hb", abroad())
	for _, chain := range []string{"in-web", "out-web", "up-web", "about-web"} {
		w.Run("hb", "nft", "delete", "chain", "bridge", "godwit", chain)
		w.stands("hb", abroad(), false)
		w.set("hb", abroad())
	}
}
