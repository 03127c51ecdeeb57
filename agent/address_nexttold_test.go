package agent

import (
	"net/http"
	"net/netip"
	"path"
	"slices"
	"testing"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/guests"
	"godwit/agent/hook"
	"godwit/agent/peer"
	"godwit/agent/record"
	"godwit/agent/talk"
	"godwit/migration"
)

// subscribed hears what hooks of a are told of an event.
func subscribed(t *testing.T, a *Agent, event migration.EventName) *hook.Subscriber {
	t.Helper()
	n, err := a.hooks.Subscribe(hook.Subscription{Name: "lb", Events: []migration.EventName{event}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return n
}

// isTold compares what a hook was told with the network and the next address that the guest got.
func isTold(t *testing.T, name string, n *hook.Subscriber, network, next string) {
	t.Helper()
	call := (<-n.Calls()).Call
	want := []netip.Addr{netip.MustParseAddr(next)}
	if !slices.Equal(call.Next, want) || !slices.Equal(migration.Bare(call.Plan.Next), want) || call.Plan.Network != network {
		t.Errorf("%s: hooks of %s on %s are told %s, plan %s with %+v; want %s with %v",
			name, call.Event, call.Host, call.Next, call.Plan.Network, call.Plan.Next, network, want)
	}
}

// TestHooksAreToldWhatTheGuestGot: hooks at the destination are told the addresses that the guest has by then, and not
// those that were planned, of which somebody else may have one by now. So is who asks for its report.
func TestHooksAreToldWhatTheGuestGot(t *testing.T) {
	for name, c := range map[string]struct {
		comes         func(m *incoming)
		network, next string
	}{
		"as planned": {func(*incoming) {}, "mptcp", "10.2.1.10"},
		"somebody has taken it": {func(m *incoming) {
			m.changeNext(func(all []migration.Address) { all[0].Prefix = netip.MustParsePrefix("10.2.1.11/24") })
		}, "mptcp", "10.2.1.11"},
		"its handover failed": {(*incoming).keepAddress, "tunnel", "10.1.1.10"},
	} {
		a, _ := served(t)
		m := landing(t, guests.New(care.Held{Description: config.Description{Name: "web"}}, nil))
		m.a.config.Host, m.a.metrics, m.a.feed, m.a.hooks = "paris", a.metrics, a.feed, a.hooks
		m.a.follow(m.rec, m.plan)
		n := subscribed(t, m.a, migration.HandoverDone)
		c.comes(m)
		if err := m.handed(nil, nil); err != nil {
			t.Fatal(err)
		}
		isTold(t, name, n, c.network, c.next)
		if rep := m.rec.Snapshot(); rep.Network != c.network || !slices.Equal(migration.Bare(rep.Next), []netip.Addr{netip.MustParseAddr(c.next)}) {
			t.Errorf("%s: its report has %s, %v; want %s, %s", name, rep.Network, rep.Next, c.network, c.next)
		}
	}
}

// TestSourceHooksAreToldWhatTheGuestGot: so are those at the source, by what the destination says as the handover is
// done; an agent there of before that says it as the guest has landed.
func TestSourceHooksAreToldWhatTheGuestGot(t *testing.T) {
	held := []migration.Address{{Prefix: netip.MustParsePrefix("10.1.1.10/24")}}
	planned := []migration.Address{{Prefix: netip.MustParsePrefix("10.2.1.10/24")}}
	got := []migration.Address{{Prefix: netip.MustParsePrefix("10.2.1.11/24")}}
	for name, c := range map[string]struct {
		said  record.Event // as the handover is done
		there string       // network, as the guest has landed
		first string       // address, of HANDOVER_DONE
		last  string       // and of MIGRATION_DONE
	}{
		"somebody has taken it": {record.Event{Network: "mptcp", Next: got}, "mptcp", "10.2.1.11", "10.2.1.11"},
		"its handover failed":   {record.Event{Network: "tunnel", Next: held}, "tunnel", "10.1.1.10", "10.1.1.10"},
		"an agent of before":    {record.Event{}, "mptcp", "10.2.1.10", "10.2.1.11"},
		"what cannot be meant":  {record.Event{Network: "pigeon", Next: make([]migration.Address, 1)}, "pigeon", "10.2.1.10", "10.2.1.11"},
	} {
		a, _ := served(t)
		m := leaving(a)
		m.guest, m.plan.Network, m.plan.Held, m.plan.Next = guests.New(care.Held{}, nil), "mptcp", held, planned
		m.rec.SetPlan(m.plan)
		c.said.N, c.said.Kind, c.said.Name, c.said.At = 1, "event", migration.HandoverDone, time.Now().UnixNano()
		m.link = linked(t, "paris", "rome", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if path.Base(r.URL.Path) == "landed" {
				peer.Answer(w, talk.LandedAnswer{Report: record.Report{Outcome: migration.Completed, Network: c.there, Next: got}}, nil)
				return
			}
			peer.Answer(w, record.EventsAnswer{Over: true, Born: 1, Events: []record.Event{c.said}}, nil)
		}))
		n := subscribed(t, a, migration.HandoverDone)
		if err := m.awaitLanding(t.Context()); err != nil {
			t.Fatal(err)
		}
		network := "mptcp"
		if c.there == "tunnel" {
			network = c.there
		}
		isTold(t, name, n, network, c.first)
		n.Close()
		n = subscribed(t, a, migration.MigrationDone)
		m.rec.Event(migration.MigrationDone)
		isTold(t, name, n, network, c.last)
	}
}

// TestWhatTheGuestGotOutlivesTheSource: an agent that is started again once the guest has landed tells what it got.
func TestWhatTheGuestGotOutlivesTheSource(t *testing.T) {
	a, _ := served(t)
	a.detours = detour.New("", config.Network{}, nil)
	m := leaving(a)
	m.guest = guests.New(care.Held{}, nil)
	m.plan.Network, m.plan.Next = "mptcp", []migration.Address{{Prefix: netip.MustParsePrefix("10.2.1.10/24")}}
	got := []migration.Address{{Prefix: netip.MustParsePrefix("10.2.1.11/24")}}
	m.state = migration.Source{Course: migration.Ended, Outcome: migration.Completed, Epoch: 2}
	m.rec.Edit(func(r *record.Report) { r.Network, r.Next = "mptcp", got })
	m.foundAgain()
	if next := m.rec.Snapshot().Next; !slices.Equal(next, got) {
		t.Errorf("its report has %v", next)
	}
	n := subscribed(t, a, migration.MigrationDone)
	m.rec.Event(migration.MigrationDone)
	isTold(t, "started again", n, "mptcp", "10.2.1.11")
}
