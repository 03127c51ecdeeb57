package agent

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"godwit/agent/record"
	"godwit/migration"
)

// TestNoteApart: the check says which connections cannot follow, as the destination gives the guest no address of their family.
func TestNoteApart(t *testing.T) {
	const v4, v6 = "10.1.1.10/24", "fd00:1:1::10/64"
	const four, six = "rome gives it no IPv4 address: connections by IPv4 cannot follow", "rome gives it no IPv6 address: connections by IPv6 cannot follow"
	for name, c := range map[string]struct {
		held, next  []string
		connections int
		network     string
		want        string
	}{
		"the same family":        {[]string{v4}, []string{v4}, 1, "mptcp", ""},
		"both":                   {[]string{v4, v6}, []string{v4, v6}, 1, "mptcp", ""},
		"another":                {[]string{v4}, []string{v6}, 1, "mptcp", four},
		"the other way round":    {[]string{v6}, []string{v4}, 1, "mptcp", six},
		"one of two":             {[]string{v4, v6}, []string{v6}, 1, "mptcp", four},
		"one more":               {[]string{v4}, []string{v4, v6}, 1, "mptcp", ""},
		"nobody is there":        {[]string{v4}, []string{v6}, 0, "mptcp", ""},
		"nobody is to follow":    {[]string{v4}, []string{v6}, 1, "drain", ""},
		"the addresses are kept": {[]string{v4}, []string{v4}, 1, "tunnel", ""},
	} {
		plan := migration.Plan{Guest: "web", To: "rome", Network: c.network, Connections: c.connections}
		for _, p := range c.held {
			plan.Held = append(plan.Held, migration.Address{Prefix: netip.MustParsePrefix(p)})
		}
		for _, p := range c.next {
			plan.Next = append(plan.Next, migration.Address{Prefix: netip.MustParsePrefix(p)})
		}
		m := &outgoing{plan: plan, rec: record.New("paris", plan, time.Now())}
		m.noteApart()
		if notes := strings.Join(m.rec.Snapshot().Notes, "\n"); c.want == "" && notes != "" || !strings.Contains(notes, c.want) {
			t.Errorf("%s: %q, want %q", name, notes, c.want)
		}
	}
}
