package netstate_test

import (
	"testing"

	"godwit/migration"
)

// TestManyAddresses: a guest whose old addresses something needs has one more of each family after each move. As many as
// move with a guest are made ready, led away, and taken away again.
func TestManyAddresses(t *testing.T) {
	w := newWorld(t, "wireguard")
	before := w.dumps()
	away, visits := home(false), abroad()
	away.Away, visits.Visiting = nil, nil
	for i := range migration.MostAddresses {
		a, v := home(false).Away[i%2], abroad().Visiting[i%2]
		for range i / 2 {
			a.Addr = a.Addr.Next()
		}
		v.Addr, a.Fits, v.Fits, v.Waits = a.Addr, 1408, 1408, true
		away.Away, visits.Visiting = append(away.Away, a), append(visits.Visiting, v)
	}
	w.set("ha", away)
	w.set("hb", visits)
	for i := range migration.MostAddresses {
		away.Away[i].Active, visits.Visiting[i].Waits = true, false
	}
	w.set("ha", away)
	w.set("hb", visits)
	w.cleared(before, "web")
}
