package lab

import (
	"net/netip"
	"testing"
	"time"

	"godwit/migration"
)

// TestGivenUpBefore: the word that a handover is done may come late; what counts is what the edges had counted then.
func TestGivenUpBefore(t *testing.T) {
	a := netip.MustParseAddr("10.1.1.10")
	done := time.Now()
	for name, c := range map[string]struct {
		looks []edgeLook
		want  int64
	}{
		"the last look before it": {[]edgeLook{
			{done.Add(-200 * time.Millisecond), map[netip.Addr]flowCount{a: {toGuest: 40}}},
			{done.Add(-100 * time.Millisecond), map[netip.Addr]flowCount{a: {toGuest: 50}}},
			{done.Add(300 * time.Millisecond), map[netip.Addr]flowCount{a: {toGuest: 53}}},
		}, 50},
		"none, and the edges do not tell": {nil, 30},
	} {
		r := aRun()
		r.w.edges = &edges{}
		r.held.take("web", a, flowCount{toGuest: 30}, false)
		m := &move{guest: "web", looks: c.looks}
		r.phaseBegan(t.Context(), m, migration.Settle, done)
		r.held.keeps("web", nil)
		if got := r.held.passed("web", map[netip.Addr]flowCount{a: {toGuest: 60}}, map[netip.Addr]bool{a: true})[a]; got.toGuest != c.want {
			t.Errorf("%s: %d were the guest's, want %d", name, got.toGuest, c.want)
		}
	}
}
