package agent

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"godwit/agent/detour"
	"godwit/agent/probe"
	"godwit/netstate/tunnel"
)

// mostOverhead is the most that a tunnel of ours adds to a packet, bytes: what the path is
// tried with before it is known which.
var mostOverhead = tunnel.Overhead(tunnel.WireGuard, true)

// fit finds out how large a packet of the guest may be for the tunnel to carry it in
// one piece. It is for connections that begin later: those that are open keep what
// they have agreed on, and the tunnel's packets go in fragments.
func (m *outgoing) fit(ctx context.Context, local netip.Addr, remote netip.AddrPort) {
	mtu := m.a.config.Network.MTU
	path, err := probe.MTU(ctx, local, remote, m.work.accepted.Token, mtu+mostOverhead, 2*m.work.rtt+50*time.Millisecond)
	m.work.pathMTU = path
	if err != nil || path == 0 {
		m.rec.Note(mtuUnknown(local, remote.Addr(), err))
		return
	}
	m.plan.Fits = detour.Fitting(m.plan.Tunnel, local.Is6(), path, mtu)
}

// mtuUnknown says that the MTU of a path is not known, as asking failed, or, without an error, as nothing was answered.
func mtuUnknown(local, remote netip.Addr, err error) string {
	why := "no packet of 1000 bytes or more was answered: it may be cut by now"
	if err != nil {
		why = err.Error()
	}
	return fmt.Sprintf("path %s → %s: its MTU is not known (%s); the tunnel's packets may go in fragments", local, remote, why)
}
