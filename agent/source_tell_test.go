package agent

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"godwit/agent/addresses"
	"godwit/agent/agenttest"
	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/limits"
	"godwit/agent/record"
	"godwit/agent/talk"
	"godwit/migration"
	"godwit/vm/guest"
)

// teller is a guest that is asked to tell its clients, and takes its time.
type teller struct {
	guest.Channel
	asked chan string
	takes time.Duration
	err   error
}

func (g teller) Tell(ctx context.Context, mac string) error {
	g.asked <- mac
	if !sleep(ctx, g.takes) {
		return ctx.Err()
	}
	return g.err
}

func (teller) Done() <-chan struct{} { return nil }

// departing is a guest that moves from Paris to Rome, where it gets addresses that it can tell of.
func departing(t *testing.T, c guest.Channel) *outgoing {
	t.Helper()
	a := bareAgent(t, &config.Config{Host: "paris", Network: config.Network{V4: netip.MustParsePrefix("10.1.1.0/24")}})
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Mode: "precopy", Network: "mptcp", Downtime: 300 * time.Millisecond,
		Next: []migration.Address{{Prefix: netip.MustParsePrefix("10.2.1.10/24"), Endpoint: 3}, {Prefix: netip.MustParsePrefix("fd00:2::10/64"), Endpoint: 4}}}
	return &outgoing{a: a, guest: twoNICGuest(c), plan: plan, rec: record.New("paris", plan, time.Now()), work: &sourceWork{capabilities: []string{guest.CapTell}, accepted: talk.Acceptance{Expects: true}}}
}

// TestTells: clients are told before the guest leaves, but where they could be lost for that, or nobody can.
func TestTells(t *testing.T) {
	prefix := netip.MustParsePrefix
	for name, c := range map[string]struct {
		change func(m *outgoing)
		want   bool
	}{
		"it moves to another subnet":     {func(*outgoing) {}, true},
		"its program is of before":       {func(m *outgoing) { m.work.capabilities = []string{guest.CapReady} }, false},
		"its destination is of before":   {func(m *outgoing) { m.work.accepted.Expects = false }, false},
		"it keeps its addresses":         {func(m *outgoing) { m.plan.Network, m.plan.Next = "tunnel", nil }, false},
		"nothing is to follow":           {func(m *outgoing) { m.plan.Next[0].Endpoint, m.plan.Next[1].Endpoint = 0, 0 }, false},
		"it gets IPv6 alone":             {func(m *outgoing) { m.plan.Next = m.plan.Next[1:] }, true},
		"its next address is here, too":  {func(m *outgoing) { m.plan.Next[0].Prefix = prefix("10.1.1.77/24") }, false},
		"it is stopped for all the copy": {func(m *outgoing) { m.plan.Mode = "stopcopy" }, false},
		"it may stand still for 5 s":     {func(m *outgoing) { m.plan.Downtime = 5 * time.Second }, false},
	} {
		m := departing(t, nil)
		c.change(m)
		if got := m.tells(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestTellClients: the guest tells them once the destination is ready for them, and is not stopped before that, unless
// it takes too long.
func TestTellClients(t *testing.T) {
	yes, no := make(chan bool, 1), make(chan bool, 1)
	for name, c := range map[string]struct {
		expected chan bool
		answer   bool
		takes    time.Duration
		err      error
		asked    bool
		waits    time.Duration
	}{
		"the destination was not asked":    {},
		"it is not ready for them":         {expected: no},
		"it is":                            {expected: yes, answer: true, takes: 7 * time.Millisecond, asked: true, waits: 7 * time.Millisecond},
		"it is, and the guest refuses":     {expected: yes, answer: true, err: errors.New("crowd"), asked: true},
		"it is, and the guest is too slow": {expected: yes, answer: true, takes: time.Hour, asked: true, waits: limits.Tell.For},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := teller{asked: make(chan string, 1), takes: c.takes, err: c.err}
			m := departing(t, g)
			if c.expected != nil {
				expected := make(chan bool, 1)
				expected <- c.answer
				m.work.expected = expected
			}
			begun := time.Now()
			m.tellClients(t.Context())()
			if took := time.Since(begun); took != c.waits {
				t.Errorf("%s: waited for %v, want %v", name, took, c.waits)
			}
			if m.work.told != c.asked || len(g.asked) != map[bool]int{true: 1}[c.asked] {
				t.Fatalf("%s: told %v, asked %d times", name, m.work.told, len(g.asked))
			}
			if c.asked && <-g.asked != "52:54:00:00:00:02" {
				t.Errorf("%s: another NIC was named", name)
			}
			steps := m.rec.Snapshot().Critical
			if said := slices.ContainsFunc(steps, func(s record.Step) bool { return s.Name == "tell clients" }); said != c.asked {
				t.Errorf("%s: steps %v", name, steps)
			}
		})
	}
}

// TestSpentIDs: a guest that stays after all announces nothing by ids again that its clients may have heard of.
func TestSpentIDs(t *testing.T) {
	for name, c := range map[string]struct {
		told    bool
		reached migration.Effect
		want    uint8
	}{
		"they were told":                        {true, migration.Flip, 4},
		"they were not":                         {false, migration.CopyMemory, 2},
		"an agent before may have":              {false, migration.Pause, 4},
		"told, and the copy turned out to fail": {true, migration.AskSuspend, 4},
	} {
		m := departing(t, nil)
		m.guest.Remember(func(h *care.Held) { h.Endpoint = 2 })
		m.work.told = c.told
		for m.state.At = 0; m.state.Reached() != c.reached; m.state.At++ {
		}
		if m.spendIDs(); m.guest.Held().Endpoint != c.want {
			t.Errorf("%s: the last id is %d, want %d", name, m.guest.Held().Endpoint, c.want)
		}
	}
}

// TestExpected: a destination is ready for a guest's clients while nobody else has a next address.
func TestExpected(t *testing.T) {
	a := between(t)
	m := comes(t, a)
	m.plan.Next = []migration.Address{{Prefix: netip.MustParsePrefix("10.2.1.10/24"), Endpoint: 3}}
	a.incoming[m.plan.ID] = m
	m.work.guest = twoNICGuest(nil)
	ask := func(epoch uint64) bool {
		t.Helper()
		answer, err := a.peerExpect(callFrom(t, "paris", m.plan.ID, talk.Try{Epoch: epoch}))
		if err != nil {
			t.Fatal(err)
		}
		return answer.(talk.ExpectAnswer).Free
	}
	if ask(2) {
		t.Error("free, and nobody has looked")
	}
	taken, looks := make(chan bool, 1), make(chan struct{})
	taken <- false
	m.work.guard.Store(addresses.Watch(t.Context(), migration.Bare(m.plan.Next), time.Millisecond, func(ctx context.Context, _ netip.Addr) (string, bool) {
		select {
		case looks <- struct{}{}:
		case <-ctx.Done(): // nobody looks any more
			return "", false
		}
		used := <-taken
		taken <- used
		return "52:54:00:00:00:99", used
	}))
	look := func() { <-looks; <-looks } // what the first has seen is known
	if look(); !ask(2) {
		t.Error("not free, and nobody has it")
	}
	if _, err := a.peerExpect(callFrom(t, "paris", m.plan.ID, talk.Try{Epoch: 1})); err == nil {
		t.Error("it was asked by an earlier try, and answered")
	}
	m.plan.Held = []migration.Address{{Prefix: netip.MustParsePrefix("10.2.1.50/24"), Home: "rome2"}, {Prefix: netip.MustParsePrefix("10.3.1.10/24"), Home: "oslo"}}
	if ask(2) {
		t.Error("free, and its LAN here may know the NIC's MAC for an address that another host here leads after it")
	}
	if m.plan.Held[0].Home = "rome"; !ask(2) {
		t.Error("not free, and what it holds this host itself leads after it, or is of elsewhere")
	}
	if m.work.prepared.Home = []netip.Addr{m.plan.Held[0].Prefix.Addr()}; ask(2) {
		t.Error("free, and the subnet agent leads what it holds")
	}
	m.plan.Held, m.work.prepared = nil, talk.Prepared{}
	_, err := a.peerExpect(callFrom(t, "oslo", m.plan.ID, talk.Try{Epoch: 2}))
	agenttest.Refused(t, "another host", err, migration.CodeUsage, m.plan.ID)
	<-taken
	taken <- true
	if look(); ask(2) {
		t.Error("free, and somebody has it")
	}
	m.work.guard.Load().Stop()
	if m.work.guard.Store(nil); ask(2) {
		t.Error("free, and the handover has begun")
	}
}
