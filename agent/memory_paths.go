package agent

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"godwit/agent/config"
	"godwit/agent/limits"
	"godwit/agent/peer"
	"godwit/agent/probe"
	"godwit/agent/ways"
)

// Over which pairs of uplinks memory and disks go is chosen in package ways.

// beginRoundTrips measures the round trips of all pairs of uplinks that carry migrations. What it returns waits until
// those that memory has by their rates have answered, or all had their time.
func (m *outgoing) beginRoundTrips(ctx context.Context, n config.Neighbour) (wait func() ways.Trips) {
	ctx, cancel := limits.RoundTrip.On(ctx)
	m.plan.Paths = nil
	first, token := m.paths(n), m.work.accepted.Token
	all := slices.DeleteFunc(m.a.config.Paths(n), func(p peer.Path) bool { return !p.Memory })
	type trip struct {
		ends [2]netip.Addr
		rtt  time.Duration // 0: it did not answer
	}
	answers := make(chan trip, len(all))
	for _, p := range all {
		go func() {
			rtt, _ := probe.RoundTrip(ctx, p.Local, netip.AddrPortFrom(p.Remote, m.a.config.Port), token, probe.Least)
			answers <- trip{ways.Ends(p), rtt}
		}()
	}
	return func() ways.Trips {
		defer cancel()
		trips := ways.Trips{}
		for range all {
			one := <-answers
			trips[one.ends] = one.rtt
			if !slices.ContainsFunc(first, func(p peer.Path) bool { return trips[ways.Ends(p)] == 0 }) {
				break
			}
		}
		return trips
	}
}

// choosePaths settles over which pairs of uplinks memory goes, by the round trips of those that answered.
func (m *outgoing) choosePaths(n config.Neighbour, trips ways.Trips) {
	chosen := trips.Choose(m.plan, m.a.config.Paths(n), m.work.rtt)
	m.plan.Paths, m.work.trips, m.work.answered = append(m.plan.Paths, chosen.Ends...), chosen.Trips, trips
	if chosen.Note != "" {
		m.rec.NoteOnce(chosen.Note)
	}
}

// answering are those of memory's paths that answered in the check; all of them where none did, or they were not tried.
func (m *outgoing) answering(paths []peer.Path) []peer.Path { return m.work.answered.Answering(paths) }

// leastTrip is the shortest round trip of memory's paths, as they were probed: so long at least is what was sent on its way.
func (m *outgoing) leastTrip() time.Duration {
	if len(m.work.trips) == 0 {
		return m.work.rtt
	}
	return slices.Min(m.work.trips)
}

// noteBuffers says which connections the kernels' limits slow down, and settles the window of the
// transfer mptcp.
func (m *outgoing) noteBuffers(all []ways.Connection) {
	here := peer.KernelBuffers()
	there := peer.Buffers{}
	if m.work.accepted.Buffers != nil {
		there = *m.work.accepted.Buffers
	}
	for _, c := range all {
		if m.plan.Multipath() {
			m.work.window = c.MultipathWindow(there)
		}
		for _, text := range c.Slowed(m.plan, m.bandwidth.Bits(), here, there) {
			m.rec.NoteOnce(text)
		}
	}
}
