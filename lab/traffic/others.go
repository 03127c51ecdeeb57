package traffic

import (
	"net/netip"
	"time"

	"godwit/netstate/mptcp"
)

// iperf3's sockets are its own. What the kernel lists of them in the client's namespace says
// whether they speak MPTCP and where they have got to.

// lookAgain is how often the list is read.
const lookAgain = int64(500 * time.Millisecond)

// others are the MPTCP connections of a flow's program at one time.
type others struct {
	at    int64
	found []mptcp.Connection
}

// look reads the list again where that is due. The caller holds state.
func (p *program) look(at int64) []mptcp.Connection {
	if p.Kind != Iperf3 || !p.MPTCP || at-p.others.at < lookAgain {
		return p.others.found
	}
	all, err := mptcp.Connections()
	if err != nil {
		return p.others.found
	}
	to := netip.AddrPortFrom(p.Target, p.port())
	p.others = others{at: at}
	for _, c := range all {
		if c.Remote == to && !c.Fallback {
			p.others.found = append(p.others.found, c)
		}
	}
	return p.others.found
}

// speaksMPTCP says whether all that the program has do: iperf3 has one connection more than it
// measures with, for control.
func (p *program) speaksMPTCP(found []mptcp.Connection) bool {
	return len(found) > max(1, p.Connections)
}

// subflowsOf lists the subflows of the first connections for a sample.
func subflowsOf(found []mptcp.Connection) (all []Subflow) {
	for i, c := range found[:min(len(found), shownConnections)] {
		for _, s := range c.Subflows {
			all = append(all, Subflow{
				Connection: i, Local: s.Local, Remote: s.Remote, Established: s.State == mptcp.StateEstablished,
				RTT: float64(s.RTT.Microseconds()) / 1000, Retransmits: int64(s.Retransmits), Sent: s.BytesAcked, Received: s.BytesReceived,
			})
		}
	}
	return all
}

// everywhere are the addresses to which each of the connections has an established subflow.
func everywhere(found []mptcp.Connection) (addrs []netip.Addr) {
	counts := map[netip.Addr]int{}
	for _, c := range found {
		here := map[netip.Addr]bool{}
		for _, s := range c.Subflows {
			if a := s.Remote.Addr(); s.State == mptcp.StateEstablished && !here[a] {
				here[a] = true
				counts[a]++
			}
		}
	}
	for a, n := range counts {
		if n == len(found) {
			addrs = append(addrs, a)
		}
	}
	return addrs
}
