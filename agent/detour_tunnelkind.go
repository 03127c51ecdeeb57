package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"godwit/agent/detour"
	"godwit/agent/probe"
	"godwit/migration"
	"godwit/netstate/tunnel"
)

// checkTunnel refuses a kind of tunnel that would not carry the guest's packets from local
// to remote; pathMTU must be known.
func (m *outgoing) checkTunnel(local, remote netip.Addr) error {
	used := false
	for _, d := range m.a.detours.List("") {
		used = used || d.Tunnel.Kind == tunnel.IPIP && d.Tunnel.Local.Addr() == local && d.Tunnel.Remote.Addr() == remote
	}
	if why := detour.UnfitTunnel(m.plan, local, m.work.pathMTU, m.a.config.Network.MTU, used); why != "" {
		return &migration.Problem{Code: migration.CodePath, Text: fmt.Sprintf("migrate guest %s: tunnel %s to %s: %s", m.plan.Guest, m.plan.Tunnel, m.plan.To, why)}
	}
	return nil
}

// goesOver says whether the way's kind of tunnel takes packets to all of its addresses over uplinks of the family of local.
func (w way) goesOver(local netip.Addr) bool {
	return !slices.ContainsFunc(w.addrs, func(addr netip.Addr) bool { return !tunnel.Carries(w.kind, local.Is6(), addr) })
}

// tunnelEnds are where this host's end of the tunnel of a guest that comes may be, the preferred one first, each with
// the port at which it answers probes as a tunnel would be answered.
func (a *Agent) tunnelEnds(plan migration.Plan, has func(plan migration.Plan, over6 bool) error) ([]netip.AddrPort, error) {
	n, _ := a.config.Peer(plan.From)
	pairs, err := detour.WithTunnel(plan, a.config.GuestPaths(n), has)
	var out []netip.AddrPort
	for _, p := range pairs {
		if end := netip.AddrPortFrom(p.Local, a.probes.LikeTunnels(p.Local)); !slices.Contains(out, end) {
			out = append(out, end)
		}
	}
	return out, err
}

// tryTunnel refuses a path on which a firewall lets the agents through, but no tunnel.
func (m *outgoing) tryTunnel(ctx context.Context, local, remote netip.Addr) error {
	port := m.work.accepted.LikeTunnels(remote)
	if port == 0 || m.plan.Tunnel == tunnel.GRE || m.plan.Tunnel == tunnel.IPIP {
		return nil
	}
	if _, err := probe.RoundTrip(ctx, local, netip.AddrPortFrom(remote, port), m.work.accepted.Token, probe.Least); err != nil {
		return &migration.Problem{Code: migration.CodePath, Text: fmt.Sprintf(
			"migrate guest %s: path %s → %s: UDP port %d of %s does not answer, port %d does: a firewall that tunnels do not pass; let UDP between the hosts' uplinks through, from and to any unprivileged port",
			m.plan.Guest, local, remote, port, m.plan.To, m.a.config.Port)}
	}
	return nil
}

// hasTunnel refuses a plan whose kind of tunnel this host's kernel lacks, over IPv6 or IPv4.
func (a *Agent) hasTunnel(plan migration.Plan, over6 bool) error {
	err := tunnel.Supported(plan.Tunnel, over6)
	var lacks *tunnel.Unsupported
	if errors.As(err, &lacks) {
		return &migration.Problem{Code: migration.CodePath, Text: fmt.Sprintf("migrate guest %s: host %s: %v", plan.Guest, a.config.Host, lacks)}
	}
	if err != nil {
		return fmt.Errorf("try tunnel %s on host %s: %w", plan.Tunnel, a.config.Host, err)
	}
	return nil
}
