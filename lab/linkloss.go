package lab

import (
	"context"
	"net/netip"

	"godwit/agent/api"
	"godwit/lab/traffic/record"
	"godwit/lab/wan"
	"godwit/migration"
	"godwit/netstate/tunnel"
)

// What an emulated link drops of a guest's packets is the link's. On their way from client
// to site that is seen, as it is before the edges; in a detour's tunnel it is behind
// them. There a link knows whose they were by the outer addresses and ports, which the
// guest's agents tell, and what they were by their length alone.

// tunnelEnds are the ends of a tunnel, as packets of one direction have them.
type tunnelEnds struct{ src, dst netip.AddrPort }

// learn remembers the tunnels of a guest, to the end of the run: what was dropped of them
// stays counted when they are gone. Kinds other than WireGuard are not told apart by links.
func (r *run) learn(info api.GuestInfo) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range info.Tunnels {
		if t.Kind != tunnel.WireGuard {
			continue
		}
		if r.tunnels == nil {
			r.tunnels = map[string]map[tunnelEnds]bool{}
		}
		if r.tunnels[info.Name] == nil {
			r.tunnels[info.Name] = map[tunnelEnds]bool{}
		}
		r.tunnels[info.Name][tunnelEnds{t.Local, t.Remote}] = true
		r.tunnels[info.Name][tunnelEnds{t.Remote, t.Local}] = true
	}
}

// learnTunnels asks for a guest's tunnels once they stand and before anything takes them,
// so that one which is gone a moment after the switch is known, too.
func (r *run) learnTunnels(ctx context.Context, m *move, phase migration.Phase) {
	if phase != migration.Copy {
		return
	}
	r.wg.Go(func() {
		if info, err := r.guestInfo(ctx, m.guest); err == nil {
			r.learn(info)
		}
	})
}

// sealed is the length of the datagram in which WireGuard carries a packet, bytes (its
// paper §5.4.6): header and tag, the packet padded to 16.
func sealed(packet int) int { return 32 + (packet+15)/16*16 }

// lostByLinks is how many packets of a guest's clients the links dropped in its tunnels.
// What probers sent is left out, as everywhere. The few others that take a tunnel, such as
// echoes, are taken for clients'; see dropped.
func (r *run) lostByLinks(guest string, links map[string]wan.Counters) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	var n int64
	for _, c := range links {
		for _, l := range c.Lost {
			if r.tunnels[guest][tunnelEnds{l.Src, l.Dst}] && l.Length != sealed(record.ProbePacket) {
				n += int64(l.Datagrams) //nolint:gosec // a count
			}
		}
	}
	return n
}
