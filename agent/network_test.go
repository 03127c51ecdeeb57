package agent

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"godwit/migration"
	"godwit/vm/guest"
)

// talking is a guest whose channel has these methods.
func talking(t *testing.T, methods map[string]guest.Handler) *Guest {
	t.Helper()
	near, far := net.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		guest.NewServer(methods).Serve(ctx, far, far) //nolint:errcheck // ends with the test
		close(ended)
	}()
	c, err := guest.NewClient(t.Context(), near)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); far.Close(); cancel(); <-ended })
	return &Guest{Channel: c, Held: Held{Description: Description{Name: "web", NICs: []NIC{{MAC: "52:54:00:00:01:0a"}, {MAC: "52:54:00:00:01:0b"}}}}}
}

func answers(value any, err error) guest.Handler {
	return func(context.Context, string, json.RawMessage) (any, error) { return value, err }
}

// TestNetworkAuto: what auto means is chosen by the connections that there are, and
// said; what a person asked for stays.
func TestNetworkAuto(t *testing.T) {
	for _, c := range []struct {
		name, ask string
		users     guest.Users
		err       error
		want      string
		chosen    bool
		notes     []string
	}{
		{"none", "auto", guest.Users{}, nil, "mptcp", true, nil},
		{"mptcp alone", "auto", guest.Users{MPTCP: 3}, nil, "mptcp", true, nil},
		{"both", "auto", guest.Users{MPTCP: 1, TCP: 2}, nil, "mptcp", true, []string{"1 MPTCP connections can follow; 2 of plain TCP"}},
		{"plain alone", "auto", guest.Users{TCP: 2}, nil, "drain", true, []string{"0 MPTCP", "network auto: drain"}},
		{"datagrams alone", "auto", guest.Users{UDP: 1}, nil, "drain", true, []string{"1 of UDP", "network auto: drain"}},
		{"cannot tell", "auto", guest.Users{}, errors.New("no sock_diag"), "mptcp", true, []string{"no sock_diag"}},
		{"asked for mptcp", "mptcp", guest.Users{TCP: 2}, nil, "mptcp", false, []string{"2 of plain TCP"}},
		{"asked for drain", "drain", guest.Users{MPTCP: 2}, nil, "drain", false, nil},
		{"asked for tunnel", "tunnel", guest.Users{TCP: 2}, nil, "tunnel", false, nil},
	} {
		g := talking(t, map[string]guest.Handler{"users": answers(c.users, c.err)})
		plan := migration.Plan{Network: c.ask, Held: []migration.Address{{Prefix: netip.MustParsePrefix("10.1.1.10/24")}}}
		m := &outgoing{guest: g, plan: plan, rec: newRecord("paris", plan, time.Now())}
		m.settleNetwork(t.Context())
		if m.plan.Network != c.want || m.plan.Chosen != c.chosen {
			t.Errorf("%s: %s, chosen %v; want %s, %v", c.name, m.plan.Network, m.plan.Chosen, c.want, c.chosen)
		}
		notes := m.rec.snapshot().Notes
		if len(notes) != len(c.notes) {
			t.Errorf("%s: notes %q, want %d", c.name, notes, len(c.notes))
			continue
		}
		for i, want := range c.notes {
			if !strings.Contains(notes[i], want) {
				t.Errorf("%s: note %q, want %q in it", c.name, notes[i], want)
			}
		}
	}
}

// TestHandoverThatFailsEnds: a guest that cannot take its next address keeps its old
// one, once the limit has passed, and the migration comes to its end.
func TestHandoverThatFailsEnds(t *testing.T) {
	g := talking(t, map[string]guest.Handler{
		"ticks": answers(struct{}{}, nil), "connections": answers(guest.Connections{}, nil),
		"configure": answers(nil, errors.New("no room")),
	})
	a := &Agent{config: &Config{State: t.TempDir(), Network: Network{Bridge: "no-such"}}, log: slog.New(slog.DiscardHandler),
		guests: &guests{dir: t.TempDir(), byName: map[string]*Guest{}}}
	held := []migration.Address{{Prefix: netip.MustParsePrefix("10.1.1.10/24"), Home: "rome"}}
	plan := migration.Plan{ID: "m-00000001", Guest: "web", Network: "mptcp", Held: held,
		Next: []migration.Address{{Prefix: netip.MustParsePrefix("10.2.1.10/24"), Home: "paris"}}}
	g.Held.Addresses = held
	m := &incoming{a: a, plan: plan, rec: newRecord("paris", plan, time.Now()), work: &destinationWork{guest: g}}
	if err := m.adopt(t.Context()); err == nil || !strings.Contains(err.Error(), "no room") {
		t.Fatalf("the first try: %v, want that it is tried again", err)
	}
	m.work.adopting = time.Now().Add(-adoptLimit)
	if err := m.adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	rep := m.rec.snapshot()
	if rep.Network != "tunnel" || rep.Handed == 0 || !m.plan.KeepsAddress() || len(g.Held.Addresses) != 1 || g.Held.Addresses[0] != held[0] || g.Held.Active != 0 {
		t.Errorf("network %s, addresses %v, NIC %d; want the old address to be kept", rep.Network, g.Held.Addresses, g.Held.Active)
	}
	if len(rep.Notes) != 1 || !strings.Contains(rep.Notes[0], "no room") {
		t.Errorf("notes %q: want why", rep.Notes)
	}
}
