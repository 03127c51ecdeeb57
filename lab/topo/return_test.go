package topo

import (
	"reflect"
	"testing"
)

// TestReturnClient: a client that comes back has the addresses that it had, by each uplink and behind its NAT, and its
// connection goes on.
func TestReturnClient(t *testing.T) {
	topo := built(t, threeSites(testID(10)))
	server := topo.Hosts()[0]
	conn, peer := connected(t, server.Namespace, topo.Client("phone").Namespace, server.Uplinks[0].V4)
	talk(t, conn, peer)
	for _, name := range []string{"phone", "tablet", "laptop"} {
		was := topo.Client(name)
		if err := topo.ReturnClient(t.Context(), name, ms(1)); err != nil {
			t.Fatal(err)
		}
		now := topo.Client(name)
		if !reflect.DeepEqual(now, was) {
			t.Errorf("%s had %+v, and has %+v", name, was, now)
		}
		for j, addr := range now.Addrs {
			if _, from, err := ping(now.Namespace, addr, server.Namespace, server.Uplinks[0].V4, soon); err != nil || from != was.Public[j] {
				t.Errorf("%s from %s: seen as %s, want %s (%v)", name, addr, from, was.Public[j], err)
			}
		}
	}
	talk(t, conn, peer)
	if err := topo.ReturnClient(t.Context(), "nobody", 0); err == nil {
		t.Error("one that does not exist returned")
	}
}
