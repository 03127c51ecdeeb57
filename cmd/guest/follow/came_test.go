package follow

import (
	"net/netip"
	"testing"
	"time"

	"godwit/netstate/mptcp"
)

// TestWhenTheLastCame: a connection that has a subflow on the next address since before it is waited for came then, by
// the kernel's word, though no event told of it; not later.
func TestWhenTheLastCame(t *testing.T) {
	setUp(t)
	client := elsewhere(t)
	first, next := netip.MustParseAddr("10.9.4.1"), netip.MustParseAddr("10.9.4.2")
	talk(t, client, "", first, false)
	began := time.Now()
	if err := mptcp.AddEndpoint(mptcp.Endpoint{ID: 3, Addr: next, Flags: mptcp.FlagSignal}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mptcp.DelEndpoint(3, next) })
	for on := false; !on; time.Sleep(10 * time.Millisecond) {
		connections, err := mptcp.Connections()
		if err != nil || time.Since(began) > 10*time.Second {
			t.Fatalf("no subflow on the next address after %v: %v", time.Since(began), err)
		}
		for _, c := range connections {
			on = on || c.On([]netip.Addr{next}, mptcp.StateEstablished)
		}
	}
	came := time.Now()
	time.Sleep(300 * time.Millisecond)
	joins, err := Await(t.Context(), awaitOf(next, first), new(Stayed), new(Moves), func(int, int) {})
	if err != nil || joins.Joined != 1 {
		t.Fatalf("%+v, %v", joins, err)
	}
	const tick = 20 * time.Millisecond // of the kernel, at most, and some
	if last := time.Duration(joins.LastMS) * time.Millisecond; last < 300*time.Millisecond-tick || last > time.Since(began)+tick {
		t.Errorf("the last came %v ago; it was there %v ago, and not before %v", last, time.Since(came), time.Since(began))
	}
}
