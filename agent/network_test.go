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

	"godwit/agent/addresses"
	"godwit/agent/agenttest"
	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/guests"
	"godwit/agent/journal"
	"godwit/agent/limits"
	"godwit/agent/record"
	"godwit/agent/talk"
	"godwit/migration"
	"godwit/vm"
	"godwit/vm/guest"
)

// talking is a guest whose channel has these methods.
func talking(t *testing.T, methods map[string]guest.Handler) *guests.Guest {
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
	return askedBy(c, guests.New(care.Held{Description: config.Description{Name: "web", NICs: []config.NIC{{MAC: "52:54:00:00:01:0a"}, {MAC: "52:54:00:00:01:0b"}}}}, nil))
}

// askedBy is g, which is asked by c.
func askedBy(c guest.Channel, g *guests.Guest) *guests.Guest {
	g.SpeakBy(c)
	return g
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
		{"both", "auto", guest.Users{MPTCP: 1, TCP: 2}, nil, "mptcp", true, []string{"1 MPTCP connections can follow" + ifAccepted + "; 2 of plain TCP (no MPTCP, or it was stripped on the way) will live on through the tunnel"}},
		{"too many", "auto", guest.Users{MPTCP: 461}, nil, "mptcp", true, []string{"461 MPTCP connections, and its kernel room for 512 with 128 MiB"}},
		{"nearly too many", "auto", guest.Users{MPTCP: 460}, nil, "mptcp", true, nil},
		{"plain alone", "auto", guest.Users{TCP: 2}, nil, "drain", true, []string{"network auto: drain", "0 MPTCP"}},
		{"one that just comes", "auto", guest.Users{MPTCP: 1, TCP: 1, Opening: 1}, nil, "mptcp", true, nil},
		{"it alone", "auto", guest.Users{TCP: 1, Opening: 1}, nil, "mptcp", true, nil},
		{"it, and plain TCP", "mptcp", guest.Users{MPTCP: 1, TCP: 3, Opening: 1}, nil, "mptcp", false, []string{"1 MPTCP connections can follow" + ifAccepted + "; 2 of plain TCP"}},
		{"a container's own", "mptcp", guest.Users{MPTCP: 1, TCP: 2, Outward: 2}, nil, "mptcp", false, []string{"2 connections of containers", "0 of plain TCP"}},
		{"datagrams alone", "auto", guest.Users{UDP: 1}, nil, "drain", true, []string{"network auto: drain", "1 of UDP"}},
		{"datagrams are not counted", "auto", guest.Users{MPTCP: 3, Uncounted: "no BPF\x1b[31m" + strings.Repeat("x", 1000)}, nil, "mptcp", true, []string{"cannot count datagrams (no BPF"}},
		{"cannot tell", "auto", guest.Users{}, errors.New("no sock_diag"), "mptcp", true, []string{"no sock_diag"}},
		{"asked for mptcp", "mptcp", guest.Users{TCP: 2}, nil, "mptcp", false, []string{"2 of plain TCP"}},
		{"asked for drain", "drain", guest.Users{MPTCP: 2}, nil, "drain", false, nil},
		{"asked for tunnel", "tunnel", guest.Users{TCP: 2}, nil, "tunnel", false, nil},
	} {
		g := talking(t, map[string]guest.Handler{"users": answers(c.users, c.err)})
		plan := migration.Plan{Network: c.ask, From: "paris", To: "rome", Held: []migration.Address{{Prefix: netip.MustParsePrefix("10.1.1.10/24")}}, Next: []migration.Address{{Prefix: netip.MustParsePrefix("10.2.1.10/24")}}}
		m := &outgoing{guest: g, plan: plan, work: &sourceWork{facts: vm.Facts{Memory: 128 << 20}}, rec: record.New("paris", plan, time.Now())}
		m.settleNetwork(t.Context())
		m.noteUsers(t.Context())
		if m.plan.Network != c.want || m.plan.Chosen != c.chosen {
			t.Errorf("%s: %s, chosen %v; want %s, %v", c.name, m.plan.Network, m.plan.Chosen, c.want, c.chosen)
		}
		notes := m.rec.Snapshot().Notes
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

// TestNoteOfAWayHome: what cannot follow to another address at home needs no tunnel where the old one is at home
// there, too.
func TestNoteOfAWayHome(t *testing.T) {
	old := func(host, home string) migration.Address {
		return migration.Address{Prefix: netip.MustParsePrefix(host + "/24"), Home: home}
	}
	const at, tunnel = "2 of plain TCP (no MPTCP, or it was stripped on the way) will live on at the old address, which is at home there: no tunnel", "2 of plain TCP (no MPTCP, or it was stripped on the way) will live on through the tunnel"
	for want, held := range map[string][]migration.Address{
		at: {old("10.2.1.10", "rome")}, strings.Replace(at, "address, which is", "addresses, which are", 1): {old("10.2.1.10", "rome"), old("10.2.1.12", "rome")}, tunnel: {old("10.2.1.10", "rome"), old("10.1.1.10", "paris")},
	} {
		plan := migration.Plan{Network: "mptcp", From: "paris", To: "rome", Held: held, Next: []migration.Address{old("10.2.1.11", "rome")}}
		m := &outgoing{plan: plan, work: &sourceWork{users: guest.Users{MPTCP: 1, TCP: 2}}, rec: record.New("paris", plan, time.Now())}
		m.noteUsers(t.Context())
		if notes := m.rec.Snapshot().Notes; len(notes) != 1 || !strings.HasSuffix(notes[0], want) {
			t.Errorf("%q, want %q", notes, want)
		}
	}
}

// TestSilentChannelIsFoundInCheck: a guest that does not answer is refused, unless it keeps its
// address and need not be asked.
func TestSilentChannelIsFoundInCheck(t *testing.T) {
	ask := limits.AskGuest
	t.Cleanup(func() { limits.AskGuest = ask })
	limits.AskGuest.For = 50 * time.Millisecond
	never := func(ctx context.Context, _ string, _ json.RawMessage) (any, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	for network, code := range map[string]migration.Code{"mptcp": migration.CodeGuest, "tunnel": ""} {
		plan := migration.Plan{Guest: "web", Network: network, Transfer: "lanes"}
		g := talking(t, map[string]guest.Handler{"info": never})
		g.Remember(func(h *care.Held) { h.Boot, h.Addresses = "first", []migration.Address{{Handover: "m-00000001"}} })
		m := &outgoing{guest: g, plan: plan, work: &sourceWork{}, rec: record.New("paris", plan, time.Now())}
		err := m.checkGuest(t.Context())
		if code == "" {
			if m.work.boot != "first" {
				t.Errorf("%s: what it has is of boot %q", network, m.work.boot)
			}
			if err != nil {
				t.Errorf("%s: %v, want that it need not answer", network, err)
			}
			continue
		}
		agenttest.Refused(t, network, err, code, "guest web", "its guest channel does not answer", "limit ask_guest")
	}
}

// TestHandoverThatFailsEnds: a guest that cannot take its next address keeps its old
// one, once the limit has passed, and the migration comes to its end.
func TestHandoverThatFailsEnds(t *testing.T) {
	first := limits.FirstTick
	t.Cleanup(func() { limits.FirstTick = first })
	limits.FirstTick.For = 10 * time.Millisecond // it sends none
	g := talking(t, map[string]guest.Handler{
		"ticks": answers(struct{}{}, nil), "connections": answers(guest.Connections{}, nil),
		"configure": answers(nil, errors.New("no room")),
	})
	m := landing(t, g)
	held := m.plan.Held
	if err := m.adopt(t.Context()); err == nil || !strings.Contains(err.Error(), "no room") {
		t.Fatalf("the first try: %v, want that it is tried again", err)
	}
	m.work.adopting = time.Now().Add(-limits.Handover.For)
	if err := m.adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	rep := m.rec.Snapshot()
	if rep.Network != "tunnel" || rep.Handed == 0 || !m.plan.KeepsAddress() || len(g.Held().Addresses) != 1 || g.Held().Addresses[0] != held[0] || g.Held().Active != 0 {
		t.Errorf("network %s, addresses %v, NIC %d; want the old address to be kept", rep.Network, g.Held().Addresses, g.Held().Active)
	}
	if len(rep.Notes) != 1 || !strings.Contains(rep.Notes[0], "no room") {
		t.Errorf("notes %q: want why", rep.Notes)
	}
}

// TestHandoverOfASilentGuestEnds: a guest that answers no more, in the middle of the
// handover, keeps its old address too; it is not waited for. (Later on it has both, TestFailedHandoverOfWhatSendsByNext.)
func TestHandoverOfASilentGuestEnds(t *testing.T) {
	handover, step := limits.Handover, limits.GuestStep
	t.Cleanup(func() { limits.Handover, limits.GuestStep = handover, step })
	limits.Handover.For, limits.GuestStep.For = 300*time.Millisecond, 50*time.Millisecond
	never := func(ctx context.Context, _ string, _ json.RawMessage) (any, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	for _, silent := range []string{"ticks", "configure", "await_join"} {
		methods := map[string]guest.Handler{
			"ticks": answers(struct{}{}, nil), "connections": answers(guest.Connections{}, nil), "configure": answers(guest.Configured{}, nil),
			"await_join": answers(guest.Joins{}, nil), "retire": answers(struct{}{}, nil),
		}
		methods[silent] = never
		m := landing(t, talking(t, methods))
		tries := 0
		for begun := time.Now(); ; tries++ {
			err := m.adopt(t.Context())
			if err == nil {
				break
			}
			if time.Since(begun) > 10*time.Second {
				t.Fatalf("silent in %s: %v, and no end", silent, err)
			}
		}
		rep := m.rec.Snapshot()
		if rep.Network != "tunnel" || rep.Handed == 0 || m.work.guest.Held().Active != 0 {
			t.Errorf("silent in %s: network %s, NIC %d, handed %d; want the old address to be kept", silent, rep.Network, m.work.guest.Held().Active, rep.Handed)
		}
		if len(rep.Notes) != 1 || !strings.Contains(rep.Notes[0], "limit ") {
			t.Errorf("silent in %s: notes %q: want the limit that passed", silent, rep.Notes)
		}
		t.Logf("silent in %s: %d tries, %q", silent, tries, rep.Notes)
	}
}

// landing is a migration of g to this host, paris, where it runs now.
func landing(t *testing.T, g *guests.Guest) *incoming {
	a := &Agent{ctx: t.Context(), config: &config.Config{State: t.TempDir(), Network: config.Network{Bridge: "no-such"}}, log: slog.New(slog.DiscardHandler),
		detours: detour.New("", config.Network{}, nil)}
	a.guests = guests.In(a.config.StatePath("guests"))
	a.book = addresses.New(a.config, a.takenAddresses)
	held := []migration.Address{{Prefix: netip.MustParsePrefix("10.1.1.10/24"), Home: "rome"}}
	plan := migration.Plan{ID: "m-00000001", Guest: "web", Network: "mptcp", Held: held,
		Next: []migration.Address{{Prefix: netip.MustParsePrefix("10.2.1.10/24"), Home: "paris"}}}
	g.Remember(func(h *care.Held) {
		h.Addresses, h.Description.NICs = held, []config.NIC{{MAC: "52:54:00:00:00:01"}, {MAC: "52:54:00:00:00:02"}}
	})
	log, err := journal.Create(a.config.StatePath("journal"), plan.ID)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() }) //nolint:errcheck // or the migration did
	return &incoming{a: a, offer: talk.Offer{Plan: plan}, plan: plan, log: log, rec: record.New("paris", plan, time.Now()), work: &destinationWork{guest: g}}
}

// TestRecall: an agent that is started again after the handover knows what became of the
// old addresses.
func TestRecall(t *testing.T) {
	old, next := migration.Address{Prefix: netip.MustParsePrefix("10.1.1.10/24")}, migration.Address{Prefix: netip.MustParsePrefix("10.2.1.10/24")}
	for _, c := range []struct {
		name        string
		has         []migration.Address
		kept, keeps bool
	}{
		{"moved", []migration.Address{next}, false, false},
		{"kept for somebody", []migration.Address{next, old}, true, false},
		{"the handover failed", []migration.Address{old}, true, true},
	} {
		m := landing(t, guests.New(care.Held{}, nil))
		m.work.guest.Remember(func(h *care.Held) { h.Addresses = c.has })
		m.recall()
		if m.work.keepsOld != c.kept || m.plan.KeepsAddress() != c.keeps {
			t.Errorf("%s: kept %v, for good %v; want %v, %v", c.name, m.work.keepsOld, m.plan.KeepsAddress(), c.kept, c.keeps)
		}
	}
}
