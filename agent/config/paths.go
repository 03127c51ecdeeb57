package config

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"

	"godwit/agent/peer"
	"godwit/migration"
)

// namesOfPaths calls paths LOCAL-REMOTE, or LOCAL:REMOTE where two would be called the same, as by uplinks a and a-b
// with b-c and c: their names tell paths apart. Both hosts call them so, in whatever order they have the uplinks.
func namesOfPaths(here, there []Uplink) func(local, remote Uplink) string {
	called := map[string]int{}
	for _, local := range here {
		for _, remote := range there {
			called[local.Name+"-"+remote.Name]++
		}
	}
	return func(local, remote Uplink) string {
		if name := local.Name + "-" + remote.Name; called[name] == 1 {
			return name
		}
		return local.Name + ":" + remote.Name
	}
}

// sortPaths puts the best path first: for memory before for guests only, then the
// faster. An unknown rate counts as unlimited, as the configuration says nothing
// against it.
func sortPaths(paths []peer.Path) {
	rank := func(p peer.Path) int64 {
		if p.Rate == 0 {
			return math.MaxInt64
		}
		return p.Rate
	}
	slices.SortStableFunc(paths, func(a, b peer.Path) int {
		if a.Memory != b.Memory {
			if a.Memory {
				return -1
			}
			return 1
		}
		return cmp.Compare(rank(b), rank(a))
	})
}

// MemoryPaths are the pairs of uplinks that may carry a migration, at most one per
// local uplink and one per remote uplink while both have any left: two paths
// through one link would only share it.
func MemoryPaths(all []peer.Path) []peer.Path { return pairUp(nil, all, 2) }

// LanePaths are those for our own data path, and for subflows of QEMU's: MemoryPaths, and where one side has more
// uplinks than the other, each of the rest with the other side's best: several slow uplinks fill a fast one, and when
// one is cut the others carry on. What is in the first of several lists comes first, and the next have what uplinks are
// left then.
func LanePaths(lists ...[]peer.Path) (out []peer.Path) {
	for _, all := range lists {
		out = pairUp(pairUp(out, all, 2), all, 1)
	}
	ShareEnds(out)
	return out
}

// pairUp adds, of all that may carry a migration, each of whose two uplinks so many are fresh: no path before it has them.
func pairUp(out, all []peer.Path, fresh int) []peer.Path {
	taken := map[netip.Addr]int{}
	for _, p := range out {
		taken[p.Local], taken[p.Remote] = 1, 1
	}
	for _, p := range all {
		if p.Memory && taken[p.Local]+taken[p.Remote] <= 2-fresh {
			taken[p.Local], taken[p.Remote] = 1, 1
			out = append(out, p)
		}
	}
	return out
}

// ShareEnds divides the rates of the uplinks at both ends among the paths that share them, whatever others they were
// divided among before.
func ShareEnds(paths []peer.Path) {
	for i, p := range paths {
		paths[i].Rate = slower(p.LocalRate, p.RemoteRate)
	}
	shareUplinks(paths, func(p peer.Path) (netip.Addr, int64) { return p.Local, p.LocalRate })
	shareUplinks(paths, func(p peer.Path) (netip.Addr, int64) { return p.Remote, p.RemoteRate })
}

// shareUplinks divides an uplink's rate among the paths that share it, by their own rates.
func shareUplinks(paths []peer.Path, end func(peer.Path) (netip.Addr, int64)) {
	sums := map[netip.Addr]int64{}
	for _, p := range paths {
		addr, _ := end(p)
		sums[addr] += p.Rate
	}
	for i, p := range paths {
		if addr, rate := end(p); rate > 0 && sums[addr] > rate {
			paths[i].Rate = int64(float64(p.Rate) * float64(rate) / float64(sums[addr]))
		}
	}
}

// Ways are GuestPaths to n, after a look that there is one for the migration's own bytes too. Its error is a
// *migration.Problem of code path.
func (c *Config) Ways(p migration.Plan, n Neighbour) ([]peer.Path, error) {
	none := func(what string) error {
		return &migration.Problem{Code: migration.CodePath, Text: fmt.Sprintf("migrate guest %s: no uplink on both %s and %s carries %s", p.Guest, p.From, p.To, what)}
	}
	guests := c.GuestPaths(n)
	if len(guests) == 0 {
		return nil, none("guests' traffic")
	}
	if len(MemoryPaths(c.Paths(n))) == 0 {
		return nil, none("migrations")
	}
	return guests, nil
}

// GuestPaths are the pairs of uplinks that guests' traffic, and so a tunnel, may take. The first is to be
// taken where it can: of the first on each side that carries guests, as the sites' routers do.
func (c *Config) GuestPaths(n Neighbour) []peer.Path {
	return slices.DeleteFunc(c.pairs(n), func(p peer.Path) bool { return !p.Guest })
}
