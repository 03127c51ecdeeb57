package agent

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"godwit/agent/record"
	"godwit/migration"
	"godwit/vm/guest"
)

// TestNoteListeners: the check names what listens on an address that the guest leaves, and that alone. A program of the
// guest that knows nothing of it is not asked.
func TestNoteListeners(t *testing.T) {
	on := func(ports ...uint16) (l guest.Listeners) {
		for _, p := range ports {
			l.List = append(l.List, guest.Listener{Kind: guest.KindTCP, Local: netip.AddrPortFrom(netip.MustParseAddr("10.1.1.10"), p)})
		}
		return l
	}
	const old, back, next = "10.1.1.10/24", "10.3.1.10/24", "10.2.1.10/24"
	many := on(1, 2, 3, 4)
	many.Omitted = 7
	for name, c := range map[string]struct {
		network string
		next    []string
		able    bool
		says    guest.Listeners
		err     error
		asked   string // for which addresses
		want    string
	}{
		"one":                {"mptcp", []string{next}, true, on(5301), nil, "10.1.1.10 10.3.1.10", "programs of the guest listen on 10.1.1.10:5301 (tcp), and not on all addresses"},
		"many":               {"drain", []string{next}, true, many, nil, "10.1.1.10 10.3.1.10", "10.1.1.10:1 (tcp), 10.1.1.10:2 (tcp), 10.1.1.10:3 (tcp) and 8 more, and"},
		"home to one":        {"mptcp", []string{back}, true, on(5301), nil, "10.1.1.10", "10.1.1.10:5301 (tcp), and"},
		"none":               {"mptcp", []string{next}, true, on(), nil, "10.1.1.10 10.3.1.10", ""},
		"it cannot tell":     {"mptcp", []string{next}, true, on(), errors.New("no sock_diag"), "10.1.1.10 10.3.1.10", ""},
		"a program of older": {"mptcp", []string{next}, false, on(5301), nil, "", ""},
		"it keeps them":      {"tunnel", []string{old, back}, true, on(5301), nil, "", ""},
		"it leaves none":     {"mptcp", []string{old, back}, true, on(5301), nil, "", ""},
	} {
		asked := ""
		g := talking(t, map[string]guest.Handler{guest.CapListeners: func(_ context.Context, _ string, raw json.RawMessage) (any, error) {
			var p struct{ Addrs []string }
			err := json.Unmarshal(raw, &p)
			asked = strings.Join(p.Addrs, " ")
			return c.says, errors.Join(err, c.err)
		}})
		plan := migration.Plan{Guest: "web", To: "rome", Network: c.network}
		for _, p := range []string{old, back} {
			plan.Held = append(plan.Held, migration.Address{Prefix: netip.MustParsePrefix(p)})
		}
		for _, p := range c.next {
			plan.Next = append(plan.Next, migration.Address{Prefix: netip.MustParsePrefix(p)})
		}
		m := &outgoing{guest: g, plan: plan, work: &sourceWork{}, rec: record.New("paris", plan, time.Now())}
		if c.able {
			m.work.capabilities = []string{guest.CapListeners}
		}
		m.noteListeners(t.Context())
		notes := strings.Join(m.rec.Snapshot().Notes, "\n")
		if asked != c.asked || c.want == "" && notes != "" || !strings.Contains(notes, c.want) {
			t.Errorf("%s: asked for %q, want %q; noted %q, want %q", name, asked, c.asked, notes, c.want)
		}
	}
}
