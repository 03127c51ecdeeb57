package config

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"godwit/agent/peer"
	"godwit/migration"
)

func names(paths []peer.Path) []string {
	out := []string{}
	for _, p := range paths {
		out = append(out, p.Name)
	}
	return out
}

func TestSortPaths(t *testing.T) {
	for _, c := range []struct {
		name  string
		paths []peer.Path
		want  []string
	}{
		{"the faster first", []peer.Path{{Name: "slow", Rate: 1}, {Name: "fast", Rate: 9}}, []string{"fast", "slow"}},
		{"unknown is unlimited", []peer.Path{{Name: "fast", Rate: 9}, {Name: "unknown"}}, []string{"unknown", "fast"}},
		{"for memory before faster", []peer.Path{{Name: "guests", Rate: 9}, {Name: "memory", Rate: 1, Memory: true}}, []string{"memory", "guests"}},
		{"equals keep their order", []peer.Path{{Name: "a", Rate: 5}, {Name: "b", Rate: 5}, {Name: "c", Rate: 6}}, []string{"c", "a", "b"}},
		{"none", nil, []string{}},
	} {
		sortPaths(c.paths)
		if got := names(c.paths); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// host is a configuration with one uplink for each rule of carries.
func host(net byte, carries ...string) (*Config, Neighbour) {
	c := &Config{}
	for i, what := range carries {
		c.Uplinks = append(c.Uplinks, Uplink{
			Name: string(rune('a' + i)), Address: netip.AddrFrom4([4]byte{10, net, 0, byte(i)}), Carries: what, Rate: int64(len(carries) - i),
		})
	}
	return c, Neighbour{Uplinks: c.Uplinks}
}

func TestMemoryPaths(t *testing.T) {
	for _, c := range []struct {
		name        string
		here, there []string
		want        []string
	}{
		{"one each", []string{"both"}, []string{"both"}, []string{"a-a"}},
		{"two each, no uplink twice", []string{"both", "migration"}, []string{"both", "migration"}, []string{"a-a", "b-b"}},
		{"the fewer side decides", []string{"both", "migration", "migration"}, []string{"migration"}, []string{"a-a"}},
		{"guests' uplinks carry none", []string{"guest", "migration"}, []string{"both", "guest"}, []string{"b-a"}},
		{"nothing in common", []string{"guest"}, []string{"both"}, []string{}},
	} {
		here, _ := host(1, c.here...)
		_, there := host(2, c.there...)
		if got := names(MemoryPaths(here.Paths(there))); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestLanePaths(t *testing.T) {
	for _, c := range []struct {
		name        string
		here, there []int64 // rates
		want        []string
		rates       []int64
	}{
		{"one each", []int64{350}, []int64{100}, []string{"a-a"}, []int64{100}},
		{"two each", []int64{350, 100}, []int64{350, 100}, []string{"a-a", "b-b"}, []int64{350, 100}},
		{"two slow to one fast", []int64{20, 10}, []int64{1000}, []string{"a-a", "b-a"}, []int64{20, 10}},
		{"two that share one", []int64{300, 100}, []int64{200}, []string{"a-a", "b-a"}, []int64{133, 66}},
		{"more there", []int64{100}, []int64{100, 100}, []string{"a-a", "a-b"}, []int64{50, 50}},
		{"of the rest each with the best", []int64{30, 20, 10}, []int64{40, 5}, []string{"a-a", "b-b", "c-a"}, []int64{30, 5, 10}},
		{"unknown rates", []int64{0, 0}, []int64{0}, []string{"a-a", "b-a"}, []int64{0, 0}},
	} {
		uplinks := func(net byte, rates []int64) (out []Uplink) {
			for i, r := range rates {
				out = append(out, Uplink{Name: string(rune('a' + i)), Address: netip.AddrFrom4([4]byte{10, net, 0, byte(i)}), Carries: "both", Rate: r})
			}
			return out
		}
		here := &Config{Uplinks: uplinks(1, c.here)}
		paths := LanePaths(here.Paths(Neighbour{Uplinks: uplinks(2, c.there)}))
		rates := []int64{}
		for _, p := range paths {
			rates = append(rates, p.Rate)
		}
		if got := names(paths); !slices.Equal(got, c.want) || !slices.Equal(rates, c.rates) {
			t.Errorf("%s: %v of %v, want %v of %v", c.name, got, rates, c.want, c.rates)
		}
	}
}

// What has no way for its memory, or for its packets, is refused in the check.
func TestWays(t *testing.T) {
	for _, c := range []struct {
		here, there []string
		want        string
	}{
		{[]string{"both"}, []string{"both"}, ""},
		{[]string{"guest", "migration"}, []string{"migration", "guest"}, ""},
		{[]string{"guest"}, []string{"both"}, "migrations"},
		{[]string{"both"}, []string{"guest"}, "migrations"},
		{[]string{"migration"}, []string{"both"}, "guests' traffic"},
	} {
		here, _ := host(1, c.here...)
		_, there := host(2, c.there...)
		_, err := here.Ways(migration.Plan{}, there)
		if (err == nil) != (c.want == "") || err != nil && !strings.HasSuffix(err.Error(), "carries "+c.want) {
			t.Errorf("%v to %v: %v, want %q", c.here, c.there, err, c.want)
		}
	}
}

// The first on each side that carries guests go first, whatever the rates of the others.
func TestGuestPaths(t *testing.T) {
	for _, c := range []struct{ here, there, want []string }{
		{[]string{"both", "guest"}, []string{"both"}, []string{"a-a", "b-a"}},
		{[]string{"migration", "guest", "both"}, []string{"migration", "both"}, []string{"b-b", "c-b"}},
		{[]string{"both", "both"}, []string{"guest", "migration", "both"}, []string{"a-a", "a-c", "b-a", "b-c"}},
		{[]string{"migration"}, []string{"both"}, []string{}},
		{[]string{"both"}, []string{"migration"}, []string{}},
		{[]string{"both"}, nil, []string{}},
	} {
		here, _ := host(1, c.here...)
		for i := range here.Uplinks {
			here.Uplinks[i].Rate = int64(i + 1)
		}
		_, n := host(2, c.there...)
		if got := names(here.GuestPaths(n)); !slices.Equal(got, c.want) {
			t.Errorf("%v and %v: %q, want %q", c.here, c.there, got, c.want)
		}
	}
}

func TestSlower(t *testing.T) {
	for _, c := range [][3]int64{{0, 0, 0}, {0, 5, 5}, {5, 0, 5}, {3, 5, 3}, {5, 3, 3}} {
		if got := slower(c[0], c[1]); got != c[2] {
			t.Errorf("slower of %d and %d: %d", c[0], c[1], got)
		}
	}
}

// TestPathsOfOneFamily: an uplink by IPv4 reaches none by IPv6, and takes no share of those that it cannot reach.
func TestPathsOfOneFamily(t *testing.T) {
	up := func(name, addr string) Uplink {
		return Uplink{Name: name, Address: netip.MustParseAddr(addr), Carries: "both"}
	}
	c := &Config{Uplinks: []Uplink{up("a", "198.18.0.1"), up("b", "fd00:9::1")}}
	var got []string
	for _, p := range c.Paths(Neighbour{Uplinks: []Uplink{up("c", "198.18.0.2"), up("d", "fd00:9::2"), up("e", "::ffff:198.18.0.3")}}) {
		got = append(got, p.Name)
	}
	slices.Sort(got)
	if want := []string{"a-c", "a-e", "b-d"}; !slices.Equal(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
}

// TestPathsHaveNamesOfTheirOwn: whatever uplinks are called, no two paths are called the same, and both hosts call them so.
func TestPathsHaveNamesOfTheirOwn(t *testing.T) {
	up := func(names ...string) (out []Uplink) {
		for i, name := range names {
			out = append(out, Uplink{Name: name, Address: netip.AddrFrom4([4]byte{198, 18, byte(len(out)), byte(i)})})
		}
		return out
	}
	for _, c := range []struct{ here, there, want []string }{
		{[]string{"a", "a-b"}, []string{"b-c", "c"}, []string{"a-b-b-c", "a-c", "a:b-c", "a-b:c"}},
		{[]string{"public-1", "public-2"}, []string{"public-1"}, []string{"public-1-public-1", "public-2-public-1"}},
	} {
		for range 2 {
			got := names((&Config{Uplinks: up(c.here...)}).Paths(Neighbour{Uplinks: up(c.there...)}))
			slices.Sort(got)
			slices.Sort(c.want)
			if !slices.Equal(got, c.want) {
				t.Errorf("%q with %q: %q, want %q", c.here, c.there, got, c.want)
			}
			slices.Reverse(c.here)
			slices.Reverse(c.there)
		}
	}
}
