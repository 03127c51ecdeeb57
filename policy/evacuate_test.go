package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestEvacuate(t *testing.T) {
	const gib = 1 << 30
	on := func(host string, free int64, seconds int) Offer {
		return Offer{host, free * gib, time.Duration(seconds) * time.Second}
	}
	for _, c := range []struct {
		name   string
		guests []Evacuee
		want   string // guest→host in the order of beginning
	}{
		{"nobody", nil, ""},
		{"the faster host", []Evacuee{{"web", gib, []Offer{on("b", 8, 9), on("c", 8, 6)}}}, "web→c"},
		{"the faster host has no room", []Evacuee{{"web", 4 * gib, []Offer{on("b", 8, 9), on("c", 2, 6)}}}, "web→b"},
		{"room is not known", []Evacuee{{"web", 4 * gib, []Offer{{"b", -1, 1}}}}, "web→b"},
		{"no host can", []Evacuee{{"web", gib, nil}}, "web→"},
		{"memory is given away once", []Evacuee{{"a", 4 * gib, []Offer{on("b", 6, 1), on("c", 6, 9)}}, {"z", 4 * gib, []Offer{on("b", 6, 1), on("c", 6, 9)}}}, "a→b z→c"},
		{"none is left for the third", []Evacuee{{"a", 4 * gib, []Offer{on("b", 6, 1)}}, {"z", 4 * gib, []Offer{on("b", 6, 1)}}}, "a→b z→"},
		{"the largest chooses first", []Evacuee{{"small", gib, []Offer{on("b", 4, 1), on("c", 1, 1)}}, {"large", 4 * gib, []Offer{on("b", 4, 5), on("c", 1, 5)}}}, "small→c large→b"},
		{"a queue is worth a slower host", []Evacuee{{"a", gib, []Offer{on("b", 8, 6), on("c", 8, 8)}}, {"z", gib, []Offer{on("b", 8, 6), on("c", 8, 8)}}}, "a→b z→c"},
		{"but not one that is much slower", []Evacuee{{"a", gib, []Offer{on("b", 8, 6), on("c", 8, 60)}}, {"z", gib, []Offer{on("b", 8, 6), on("c", 8, 60)}}}, "a→b z→b"},
		{"equal hosts: the one with more room", []Evacuee{{"a", gib, []Offer{on("b", 4, 6), on("c", 8, 6)}}}, "a→c"},
		{"the one with more room left", []Evacuee{{"a", 4 * gib, []Offer{on("b", 8, 0), on("c", 6, 0)}}, {"z", gib, []Offer{on("b", 8, 0), on("c", 6, 0)}}}, "a→b z→c"},
		{"the fastest begins", []Evacuee{{"a", 4 * gib, []Offer{on("b", 8, 9)}}, {"z", gib, []Offer{on("b", 8, 2)}}}, "z→b a→b"},
	} {
		var got []string
		for _, a := range Evacuate(c.guests) {
			to := ""
			if len(a.Offers) > 0 {
				to = a.Offers[0].Host
			}
			got = append(got, a.Guest+"→"+to)
		}
		if got := strings.Join(got, " "); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestEvacuateIsWhole: every guest is there once, goes to a host that offered, and no host
// is given more than it has.
func TestEvacuateIsWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var guests []Evacuee
		free := rapid.SliceOfN(rapid.Int64Range(-1, 20), 4, 4).Draw(t, "free")
		for i := range rapid.IntRange(0, 8).Draw(t, "guests") {
			g := Evacuee{Name: fmt.Sprint("g", i), Memory: rapid.Int64Range(1, 10).Draw(t, "memory")}
			for h, f := range free {
				if rapid.Bool().Draw(t, "offers") {
					g.Offers = append(g.Offers, Offer{fmt.Sprint("h", h), f, time.Duration(rapid.IntRange(0, 5).Draw(t, "time"))})
				}
			}
			guests = append(guests, g)
		}
		given := map[string]int64{}
		out := Evacuate(guests)
		if len(out) != len(guests) {
			t.Fatalf("%d of %d guests", len(out), len(guests))
		}
		for _, g := range guests {
			i := slices.IndexFunc(out, func(a Assignment) bool { return a.Guest == g.Name })
			if i < 0 {
				t.Fatalf("%s is missing", g.Name)
			}
			for _, o := range out[i].Offers {
				if !slices.Contains(g.Offers, o) {
					t.Fatalf("%s was not offered %v", g.Name, o)
				}
			}
			if len(out[i].Offers) > 0 {
				given[out[i].Offers[0].Host] += g.Memory
			}
		}
		for h, f := range free {
			if host := fmt.Sprint("h", h); f >= 0 && given[host] > f {
				t.Fatalf("%s has %d and is given %d", host, f, given[host])
			}
		}
	})
}
