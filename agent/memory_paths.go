package agent

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"godwit/agent/config"
	"godwit/agent/limits"
	"godwit/agent/peer"
	"godwit/agent/probe"
	"godwit/migration"
)

// This file chooses the pairs of uplinks over which memory and disks go: by their rates, and where the check finds that
// some of those do not reach each other, as private ones do not reach public ones, of those that do. The plan has them.

// transferPaths are the pairs of uplinks that a plan's transfer uses, of all from its source to its destination. By their rates they
// need not be the same at both hosts, each of which has its uplinks and the other's in an order of its own; so those of the plan count, where there
// are such.
func transferPaths(p migration.Plan, all []peer.Path) []peer.Path {
	if named := pathsOf(all, p.Paths); len(named) > 0 {
		return named
	}
	if p.OwnPath() || p.Transfer == "qemu-mptcp" {
		return config.LanePaths(all)
	}
	paths := config.MemoryPaths(all)
	if p.Transfer == "qemu-tcp" || p.Transfer == "qemu-xbzrle" || p.Insecure && p.Transfer == "qemu-multifd" {
		return paths[:min(1, len(paths))]
	}
	return paths
}

// ends are the addresses of a path's uplinks.
func ends(p peer.Path) [2]netip.Addr { return [2]netip.Addr{p.Local, p.Remote} }

// pathsOf are those between such ends; nil where one of them is none that carries migrations, or named twice.
func pathsOf(all []peer.Path, named [][2]netip.Addr) (out []peer.Path) {
	for i, pair := range named {
		k := slices.IndexFunc(all, func(p peer.Path) bool { return p.Memory && ends(p) == pair })
		if k < 0 || slices.Contains(named[:i], pair) {
			return nil
		}
		out = append(out, all[k])
	}
	config.ShareEnds(out)
	return out
}

// beginRoundTrips measures the round trips of all pairs of uplinks that carry migrations. What it returns waits until those that memory has by their rates have
// answered, or all had their time.
func (m *outgoing) beginRoundTrips(ctx context.Context, n config.Neighbour) (wait func() map[[2]netip.Addr]time.Duration) {
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
			answers <- trip{ends(p), rtt}
		}()
	}
	return func() map[[2]netip.Addr]time.Duration {
		defer cancel()
		trips := map[[2]netip.Addr]time.Duration{}
		for range all {
			one := <-answers
			trips[one.ends] = one.rtt
			if !slices.ContainsFunc(first, func(p peer.Path) bool { return trips[ends(p)] == 0 }) {
				break
			}
		}
		return trips
	}
}

// choosePaths settles over which pairs of uplinks memory goes, by the round trips of those that answered: as by their rates, unless of others those
// that answer carry more; QEMU's go by no silent one. One that is silent and tried on is taken to be as long as the longest that is not, or, where all are, as the
// tunnel's.
func (m *outgoing) choosePaths(n config.Neighbour, trips map[[2]netip.Addr]time.Duration) {
	m.work.trips, m.work.answered = nil, trips
	answers := func(p peer.Path) bool { return trips[ends(p)] > 0 }
	silent := func(all []peer.Path) []peer.Path { return slices.DeleteFunc(slices.Clone(all), answers) }
	carries := func(all []peer.Path) (sum int64) {
		for _, p := range m.answering(all) {
			if answers(p) {
				sum += cmp.Or(p.Rate, 1e15) // one that is not known may carry more than all others
			}
		}
		return sum
	}
	chosen, all := m.paths(n), m.a.config.Paths(n)
	known := slices.DeleteFunc(slices.Clone(all), func(p peer.Path) bool { return !p.Memory || !answers(p) })
	others := transferPaths(m.plan, known)
	if m.plan.OwnPath() { // an uplink by which nothing answers may be down for a while; QEMU's connections are all lost with one of them
		others = config.LanePaths(known, all)
	}
	slices.SortStableFunc(chosen, func(a, b peer.Path) int { // those that answer first, as a connection begins over the first
		return cmp.Compare(min(1, trips[ends(b)]), min(1, trips[ends(a)]))
	})
	if was := silent(chosen); carries(others) > carries(chosen) || !m.plan.OwnPath() && len(known) > 0 && len(was) > 0 {
		chosen = others
		m.rec.NoteOnce(fmt.Sprintf("memory goes over %s, as nothing is answered over %s", strings.Join(pathNames(m.answering(chosen)), ", "), strings.Join(pathNames(was), ", ")))
	}
	var longest time.Duration
	for _, p := range chosen {
		m.plan.Paths = append(m.plan.Paths, ends(p))
		longest = max(longest, trips[ends(p)])
	}
	for _, p := range chosen {
		m.work.trips = append(m.work.trips, cmp.Or(trips[ends(p)], longest, m.work.rtt))
	}
}

// answering are those of memory's paths that answered in the check; all of them where none did, or they were not tried.
func (m *outgoing) answering(paths []peer.Path) []peer.Path {
	out := slices.DeleteFunc(slices.Clone(paths), func(p peer.Path) bool { return m.work.answered[ends(p)] == 0 })
	if len(out) == 0 {
		return paths
	}
	config.ShareEnds(out)
	return out
}
