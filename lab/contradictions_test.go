package lab

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"godwit/agent/record"
	"godwit/lab/scenario"
	"godwit/lab/traffic"
	"godwit/migration"
)

// TestOtherwise: what a client felt of a connection is held against what the guest's own list tells of it.
func TestOtherwise(t *testing.T) {
	second := int64(time.Second)
	end, next := netip.MustParseAddrPort("10.1.1.10:7001"), netip.MustParseAddr("10.2.1.10")
	here, outside := netip.MustParseAddrPort("10.9.1.2:40000"), netip.MustParseAddrPort("10.9.7.1:40000")
	lives := traffic.Connection{Survived: true, Last: 100 * second, Local: here, Peer: end, Remotes: []netip.Addr{next}}
	stuck := lives
	stuck.Remotes = []netip.Addr{end.Addr()}
	lost := traffic.Connection{Last: 15 * second, Local: here, Peer: end}
	early := traffic.Connection{Last: 5 * second, Ended: 6 * second, Local: here, Peer: end}
	list := func(fate migration.Fate, at int64) *record.Survival {
		return &record.Survival{Connections: []record.Survivor{{Local: end, Remote: here, Fate: fate, At: at}}}
	}
	elsewhere := &record.Survival{Connections: []record.Survivor{{Local: end, Remote: outside, Fate: migration.Lost, At: 25 * second}}}
	for _, c := range []struct {
		name string
		felt traffic.Connection
		nat  bool
		list *record.Survival
		says string
	}{
		{"moved", lives, false, list(migration.Moved, 0), ""},
		{"through the tunnel", stuck, false, list(migration.Tunnelled, 0), ""},
		{"moved, and its client lost it", lost, false, list(migration.Moved, 0), "moved, and its client heard nothing"},
		{"tunnelled, and its client lost it", lost, false, list(migration.Tunnelled, 0), "tunnelled, and its client heard nothing"},
		{"moved, and its client has it where it was", stuck, false, list(migration.Moved, 0), "subflows to [10.1.1.10] alone"},
		{"lost, and it lives", lives, false, list(migration.Lost, 25*second), "lost, and its client heard of it"},
		{"ended, and it lives", lives, false, list(migration.EndedItself, 25*second), "ended, and its client heard of it"},
		{"lost by both", lost, false, list(migration.Lost, 25*second), ""},
		{"not on the list", lives, false, &record.Survival{}, "does not have it"},
		{"not on a list that is not whole", lives, false, &record.Survival{Omitted: 1}, ""},
		{"not on the list, and lost before it was made", lost, false, &record.Survival{}, ""},
		{"there is no list", lives, false, &record.Survival{Unknown: "the guest is silent"}, ""},
		{"ended before the migration", early, false, &record.Survival{}, ""},
		{"behind NAT, lost, and it lives", lives, true, elsewhere, "lost, and its client heard of it"},
		{"behind NAT, by another port", lives, true, &record.Survival{}, ""},
		{"another program's", traffic.Connection{Survived: true}, false, &record.Survival{}, ""},
	} {
		m := &move{guest: "web", asked: time.Unix(10, 0), report: &record.Report{
			Outcome: migration.Completed, Network: "mptcp", Next: []migration.Address{{Prefix: netip.PrefixFrom(next, 24)}},
			Resumed: 18 * second, Handed: 20 * second, Ended: 22 * second, Survival: c.list,
		}}
		r := &run{
			w: &world{scenario: &scenario.Scenario{
				Clients: []scenario.Client{{Name: "phone", NAT: c.nat}}, Traffic: []scenario.Traffic{{Name: "a", Client: "phone", Guest: "web", Kind: "ticks"}},
			}},
			moves:   []*move{m},
			results: map[string]traffic.Result{"a": {Start: second, Connected: time.Second, Connections: []traffic.Connection{c.felt}}},
		}
		got := strings.Join(r.survival(m).Otherwise, "; ")
		if c.says == "" && got != "" || !strings.Contains(got, c.says) {
			t.Errorf("%s: want %q, got %q", c.name, c.says, got)
		}
	}
}
