package follow

import (
	"net/netip"
	"testing"

	"godwit/netstate/mptcp"
)

// TestCrowded: nobody is told again where that would fill up those who have come: a peer that was full takes no
// address at the next move.
func TestCrowded(t *testing.T) {
	next := netip.MustParseAddrPort("10.2.1.20:80")
	sub := func(local string, peer int, state mptcp.State) mptcp.Subflow {
		remotes := []string{"10.9.1.2:1000", "10.9.1.3:1000", "10.9.1.4:1000"}
		return mptcp.Subflow{Local: netip.MustParseAddrPort(local), Remote: netip.MustParseAddrPort(remotes[peer]), State: state}
	}
	for name, c := range map[string]struct {
		peers, rounds, closed int
		moved                 bool // before: its first subflow is gone
		want                  bool
	}{
		"one address":                      {1, 2, 0, false, false},
		"two addresses":                    {2, 2, 0, false, false},
		"two addresses, told again":        {2, 3, 0, false, false},
		"two addresses, moved before":      {2, 2, 0, true, false},
		"the same, told again":             {2, 3, 0, true, true},
		"two addresses, told again twice":  {2, 4, 0, false, true},
		"three addresses":                  {3, 2, 0, false, true},
		"two addresses, some closed again": {2, 3, 4, false, false},
	} {
		conn := mptcp.Connection{Local: netip.MustParseAddrPort("10.1.1.20:80"), Remote: netip.MustParseAddrPort("10.9.1.2:1000")}
		if c.moved {
			conn.Local = netip.MustParseAddrPort("10.1.0.20:80")
		}
		for round := range c.rounds { // the first is on the old address
			for peer := range c.peers {
				local := next.String()
				if round == 0 {
					local = "10.1.1.20:80"
				}
				conn.Subflows = append(conn.Subflows, sub(local, peer, mptcp.StateEstablished))
			}
		}
		for range c.closed {
			conn.Subflows = append(conn.Subflows, sub(next.String(), 0, mptcp.StateClose))
		}
		if got := fills(conn, []netip.Addr{next.Addr()}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
