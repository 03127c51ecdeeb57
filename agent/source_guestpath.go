package agent

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"godwit/agent/detour"
	"godwit/agent/peer"
	"godwit/agent/probe"
	"godwit/agent/ways"
	"godwit/migration"
)

// This file chooses the pair of uplinks over which the tunnel is led: that of the first on each side that carry guests, and
// where it does not answer, as an uplink is down, another.

// chooseGuestPath settles over which of the pairs of uplinks that carry guests the tunnel is led, and what a round trip takes
// there: one by which this host has a tunnel of the guest's kind, see detour.WithTunnel. That none answers is a *migration.Problem of code path.
func (m *outgoing) chooseGuestPath(ctx context.Context, pairs []peer.Path, has func(plan migration.Plan, over6 bool) error) error {
	pairs, err := detour.WithTunnel(m.plan, m.work.accepted.MayEnd(pairs), has)
	if err != nil {
		return err
	}
	chosen, rtt, first := ways.FirstThatAnswers(ctx, pairs, m.tryGuestPath)
	if chosen < 0 && len(pairs) > 1 && ctx.Err() == nil {
		return m.problem(migration.CodePath, "no pair of uplinks that carry guests' traffic answers, of %s: %v", strings.Join(ways.Names(pairs), ", "), first)
	}
	if chosen < 0 {
		return first
	}
	m.work.guestPath, m.work.rtt = pairs[chosen], rtt
	if chosen > 0 {
		m.rec.Note(fmt.Sprintf("the guest's tunnel is led over %s, as %s does not do: %v", pairs[chosen].Name, pairs[0].Name, first))
	}
	return nil
}

// tryGuestPath is the round trip of packets as large as the tunnel's are; what answers those may yet let no tunnel through.
func (m *outgoing) tryGuestPath(ctx context.Context, p peer.Path) (time.Duration, error) {
	trying, end := context.WithCancel(ctx)
	defer end()
	tunnels := make(chan error, 1)
	go func() { tunnels <- m.tryTunnel(trying, p.Local, p.Remote) }()
	rtt, err := probe.RoundTrip(ctx, p.Local, netip.AddrPortFrom(p.Remote, m.a.config.Port), m.work.accepted.Token, m.a.config.Network.MTU+mostOverhead)
	if err == nil {
		err = <-tunnels
	}
	return rtt, err
}
