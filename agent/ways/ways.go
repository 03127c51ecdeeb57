// Package ways chooses the pairs of uplinks over which a migration's memory and disks go, and says what connections
// over them carry. It is pure, but for FirstThatAnswers, which tries what it is given.
//
// They are chosen by their rates, and where the check finds that some of those do not reach each other, as private ones
// do not reach public ones, of those that do. The plan has them. Rates are in bit/s, 0 where one is not known.
package ways

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"godwit/agent/config"
	"godwit/agent/peer"
	"godwit/migration"
)

// Of are the pairs of uplinks that a plan's transfer uses, of all from its source to its destination. By their rates
// they need not be the same at both hosts, each of which has its uplinks and the other's in an order of its own; so
// those of the plan count, where there are such.
func Of(p migration.Plan, all []peer.Path) []peer.Path {
	if named := between(all, p.Paths); len(named) > 0 {
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

// Ends are the addresses of a path's uplinks.
func Ends(p peer.Path) [2]netip.Addr { return [2]netip.Addr{p.Local, p.Remote} }

// between are those between such ends; nil where one of them is none that carries migrations, or named twice.
func between(all []peer.Path, named [][2]netip.Addr) (out []peer.Path) {
	for i, pair := range named {
		k := slices.IndexFunc(all, func(p peer.Path) bool { return p.Memory && Ends(p) == pair })
		if k < 0 || slices.Contains(named[:i], pair) {
			return nil
		}
		out = append(out, all[k])
	}
	config.ShareEnds(out)
	return out
}

// Trips are round trips of pairs of uplinks for memory that were tried and answered, by their ends.
type Trips map[[2]netip.Addr]time.Duration

// Chosen is what Choose has settled.
type Chosen struct {
	Ends  [][2]netip.Addr
	Trips []time.Duration // of each
	Note  string          // what a person should know of it; "": nothing
}

// Choose settles over which of all pairs of uplinks memory of a plan goes, by the round trips of those that answered:
// as by their rates, unless of others those that answer carry more; QEMU's go by no silent one. One that is silent and
// tried on is taken to be as long as the longest that is not, or, where all are, as the tunnel's.
func (t Trips) Choose(plan migration.Plan, all []peer.Path, tunnel time.Duration) (out Chosen) {
	answers := func(p peer.Path) bool { return t[Ends(p)] > 0 }
	silent := func(all []peer.Path) []peer.Path { return slices.DeleteFunc(slices.Clone(all), answers) }
	carries := func(all []peer.Path) (sum int64) {
		for _, p := range t.Answering(all) {
			if answers(p) {
				sum += cmp.Or(p.Rate, 1e15) // one that is not known may carry more than all others
			}
		}
		return sum
	}
	chosen := Of(plan, all)
	known := slices.DeleteFunc(slices.Clone(all), func(p peer.Path) bool { return !p.Memory || !answers(p) })
	others := Of(plan, known)
	if plan.OwnPath() { // an uplink by which nothing answers may be down for a while; QEMU's connections are all lost with one of them
		others = config.LanePaths(known, all)
	}
	slices.SortStableFunc(chosen, func(a, b peer.Path) int { // those that answer first, as a connection begins over the first
		return cmp.Compare(min(1, t[Ends(b)]), min(1, t[Ends(a)]))
	})
	if was := silent(chosen); carries(others) > carries(chosen) || !plan.OwnPath() && len(known) > 0 && len(was) > 0 {
		chosen = others
		out.Note = fmt.Sprintf("memory goes over %s, as nothing is answered over %s", strings.Join(Names(t.Answering(chosen)), ", "), strings.Join(Names(was), ", "))
	}
	var longest time.Duration
	for _, p := range chosen {
		out.Ends = append(out.Ends, Ends(p))
		longest = max(longest, t[Ends(p)])
	}
	for _, p := range chosen {
		out.Trips = append(out.Trips, cmp.Or(t[Ends(p)], longest, tunnel))
	}
	return out
}

// Answering are those of memory's paths that answered in the check; all of them where none did, or they were not tried.
func (t Trips) Answering(paths []peer.Path) []peer.Path {
	out := slices.DeleteFunc(slices.Clone(paths), func(p peer.Path) bool { return t[Ends(p)] == 0 })
	if len(out) == 0 {
		return paths
	}
	config.ShareEnds(out)
	return out
}

// Names are what each is called.
func Names(paths []peer.Path) (out []string) {
	for _, p := range paths {
		out = append(out, p.Name)
	}
	return out
}

// Rate is what paths carry together, bit/s; 0 where that is not known of each: such a one may carry more than all others.
func Rate(paths []peer.Path) (sum int64) {
	for _, p := range paths {
		if p.Rate == 0 {
			return 0
		}
		sum += p.Rate
	}
	return sum
}
