package follow

import (
	"net/netip"
	"testing"

	"godwit/netstate/mptcp"
)

// TestListenersOfTheKernel: where joins to an announced port are taken no program listens, however long that stands.
func TestListenersOfTheKernel(t *testing.T) {
	setUp(t)
	e := mptcp.Endpoint{ID: 3, Addr: from, Port: 61003, Flags: mptcp.FlagSignal}
	if err := mptcp.AddEndpoint(e); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mptcp.DelEndpoint(e.ID, e.Addr) })
	tcp, _, err := mptcp.Listening()
	if err != nil || len(tcp) != 1 || tcp[0] != netip.AddrPortFrom(e.Addr, e.Port) {
		t.Fatalf("%v, %v: want that the kernel listens on its port", tcp, err)
	}
	if alone, err := Listeners([]netip.Addr{from}); err != nil || len(alone.List) != 0 {
		t.Errorf("%+v, %v: want none", alone, err)
	}
}
