package traffic

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"godwit/netstate/mptcp"
)

func TestIperf3Args(t *testing.T) {
	to := netip.MustParseAddr("10.1.1.10")
	for _, c := range []struct {
		f    Flow
		want string
	}{
		{Flow{Target: to}, "-c 10.1.1.10 -p 5201 "},
		{Flow{Target: to, Port: 5203}, " -p 5203 "},
		{Flow{Target: to, Connections: 5, Rate: 400_000}, " -P 5 -b 80000 -l 1000"},
		{Flow{Target: to, Rate: 8000}, " -b 8000 -l 512"},
		{Flow{Target: to, Rate: 1_000_000_000}, " -b 1000000000 -l 131072"},
	} {
		c.f.Kind = Iperf3
		if got := " " + strings.Join(iperf3Args(c.f), " ") + " "; !strings.Contains(got, c.want) {
			t.Errorf("%+v: %s, without %s", c.f, got, c.want)
		}
	}
}

// TestOthers: what iperf3's connections do counts when all of them do it.
func TestOthers(t *testing.T) {
	sub := func(remote string, state mptcp.State) mptcp.Subflow {
		return mptcp.Subflow{Remote: netip.AddrPortFrom(netip.MustParseAddr(remote), 5201), State: state}
	}
	old, next := "10.1.1.10", "10.2.1.10"
	found := []mptcp.Connection{
		{Subflows: []mptcp.Subflow{sub(old, mptcp.StateClose), sub(next, mptcp.StateEstablished), sub(next, mptcp.StateEstablished)}},
		{Subflows: []mptcp.Subflow{sub(old, mptcp.StateEstablished), sub(next, mptcp.StateEstablished)}},
	}
	if got := everywhere(found); !slices.Equal(got, []netip.Addr{netip.MustParseAddr(next)}) {
		t.Errorf("all are on %v", got)
	}
	if got := everywhere(nil); len(got) != 0 {
		t.Errorf("none are on %v", got)
	}
	if got := subflowsOf(found); len(got) != 5 || got[0].Established || !got[1].Established || got[4].Connection != 1 {
		t.Errorf("%+v", got)
	}
	p := &program{Flow: Flow{Connections: 2}}
	if p.speaksMPTCP(found) || !p.speaksMPTCP(append(found, mptcp.Connection{})) {
		t.Error("two for data and one for control are three")
	}
}
