package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"godwit/agent/care"
	"godwit/agent/guests"
	"godwit/agent/limits"
	"godwit/agent/record"
	"godwit/migration"
	"godwit/vm/guest"
)

// TestFailedHandoverTakesNextBack: a guest whose handover fails lets go of its next address, if it may have it, with all
// that announced it; not if it may have nothing else.
func TestFailedHandoverTakesNextBack(t *testing.T) {
	first := limits.FirstTick
	t.Cleanup(func() { limits.FirstTick = first })
	limits.FirstTick.For = 10 * time.Millisecond
	deaf := errors.New("no answer")
	for _, c := range []struct {
		fails string
		again bool
		want  bool
	}{
		{fails: "configure", want: true}, {fails: "await_join", want: true}, {fails: "make_main"}, {fails: "retire old"}, {fails: "await_join", again: true},
	} {
		var asked []guest.Retire
		methods := map[string]guest.Handler{
			"ticks": answers(struct{}{}, nil), "connections": answers(guest.Connections{}, nil), "configure": answers(guest.Configured{EndpointIDs: []uint8{7}}, nil),
			"await_join": answers(guest.Joins{}, nil), "make_main": answers(struct{}{}, nil), "users": answers(guest.Users{}, nil),
			"retire": func(_ context.Context, _ string, raw json.RawMessage) (any, error) {
				var p guest.Retire
				if err := json.Unmarshal(raw, &p); err != nil {
					return nil, err
				}
				if p.NewMAC != "" {
					return nil, deaf
				}
				asked = append(asked, p)
				return struct{}{}, nil
			},
		}
		if methods[c.fails] != nil {
			methods[c.fails] = answers(nil, deaf)
		}
		m := landing(t, talking(t, methods))
		m.plan.Next[0].Endpoint, m.work.found = 5, c.again
		if err := m.adopt(t.Context()); err == nil {
			t.Fatalf("%s: it did not fail", c.fails)
		}
		m.work.adopting = time.Now().Add(-limits.Handover.For)
		if err := m.adopt(t.Context()); err != nil {
			t.Fatalf("%s: %v", c.fails, err)
		}
		if got := len(asked) == 1; got != c.want {
			t.Errorf("%s fails, started again %v: asked to let go: %+v, want %v", c.fails, c.again, asked, c.want)
			continue
		}
		h := m.work.guest.Held()
		if h.Endpoint < 5 || h.Table != m.table() {
			t.Errorf("%s: the next move would use endpoint %d and table %d again", c.fails, h.Endpoint, h.Table)
		}
		if !c.want {
			continue
		}
		p, id := asked[0], m.plan.Next[0].Endpoint
		if p.MAC != "52:54:00:00:00:02" || p.Keep || p.Stay || !slices.Equal(p.Addrs, []netip.Addr{netip.MustParseAddr("10.2.1.10")}) || !slices.Contains(p.EndpointIDs, id) {
			t.Errorf("%s: asked for %+v, of endpoint %d", c.fails, p, id)
		}
	}
}

// TestToldHandoverTakesNextBack: of a guest that may have told its clients of its next addresses before it came, and
// could not be asked for anything since, they are to be taken all the same.
func TestToldHandoverTakesNextBack(t *testing.T) {
	for _, told := range []bool{true, false} {
		m := landing(t, guests.New(care.Held{}, nil))
		m.plan.Next[0].Endpoint = 5
		m.expects.Store(told)
		m.takeNextBack(t.Context())
		h := m.work.guest.Held()
		if used := h.Endpoint == 5 && h.Table == m.table(); used != told || len(h.ToDrop) > 0 != told {
			t.Errorf("told %v: endpoint %d, table %d, to drop %v", told, h.Endpoint, h.Table, h.ToDrop)
		}
	}
}

// TestNumbersOfAnEarlierAgentAreUsedUp: a guest that answered nobody since the agent was killed which handed it over
// may have its next address: the next move uses neither its table nor its endpoints' ids.
func TestNumbersOfAnEarlierAgentAreUsedUp(t *testing.T) {
	for again := range 2 {
		m := landing(t, guests.New(care.Held{}, nil))
		m.plan.Next[0].Endpoint, m.work.found = 5, again == 1
		m.takeNextBack(t.Context())
		if h := m.work.guest.Held(); (h.Endpoint == 5 && h.Table == m.table()) != m.work.found {
			t.Errorf("started again %v: endpoint %d, table %d", m.work.found, h.Endpoint, h.Table)
		}
	}
}

// TestNextBackIsOnTheList: a next address that the guest did not give up is on its list; what a connection needs is
// asked for on, until nothing does, the guest moves on, or as long as a lease has passed.
func TestNextBackIsOnTheList(t *testing.T) {
	for _, c := range []struct {
		name    string
		err     error
		refuses int
		busy    string
		asked   int
		listed  bool
	}{
		{"it lets go", guest.ErrBound, 2, "", 3, false}, {"its own migration settles", guest.ErrBound, 1, "m-00000001", 2, false},
		{"it moves on", guest.ErrBound, 2, "m-00000002", 1, true}, {"it never does", guest.ErrBound, 1000, "", 21, true},
		{"it does not answer", context.DeadlineExceeded, 1000, "", 1, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := &letsGo{refuses: c.refuses, err: c.err}
			g := guests.New(care.Held{}, runs{})
			m := landing(t, g)
			g.SpeakBy(l)
			taken(t, g, c.busy)
			m.work.placed = true
			m.takeNextBack(t.Context())
			m.a.actors.Wait()
			if listed := len(g.Held().ToDrop) == 1; l.asked != c.asked || listed != c.listed {
				t.Errorf("%s: asked %d times, listed %v; want %d, %v", c.name, l.asked, listed, c.asked, c.listed)
			}
		})
	}
}

// letsGo is a guest that refuses to let go of an address so often.
type letsGo struct {
	guest.Channel
	refuses, asked int
	err            error
}

func (l *letsGo) Retire(context.Context, guest.Retire) error {
	if l.asked++; l.asked <= l.refuses {
		return l.err
	}
	return nil
}

func (*letsGo) Done() <-chan struct{} { return nil }

// TestMovedOnIsNotWrittenDown: what is asked of a guest later, as a connection needs its next address, does not bring
// it back under care when it has moved on by then: it would be taken for one that has ended, with all that leads to it
// where it is.
func TestMovedOnIsNotWrittenDown(t *testing.T) {
	m := landing(t, guests.New(care.Held{}, goneMachine{}))
	g, a := m.work.guest, m.a
	g.Remember(func(h *care.Held) { h.Description.Name = "web" })
	for _, here := range []bool{false, true} {
		if here {
			underCare(t, a.guests, "web", g)
		}
		synctest.Test(t, func(t *testing.T) {
			a.ctx = t.Context()
			m.takeNextBackLater()
		})
		_, err := os.Stat(filepath.Join(a.config.StatePath("guests"), "web.json"))
		if written := err == nil; written != here || (found(a.guests, "web") != nil) != here {
			t.Errorf("under care %v: written down %v, by name %v", here, written, a.guests.All())
		}
	}
}

// TestFailedHandoverOfWhatSendsByNext: a guest whose handover fails once it sends by its next address has that by what
// is remembered and told of it, beside its old one, which is leased: nobody else gets the one, the other is given up in
// the end, and the next move begins from there. It is asked for that once more; where it never said that it does, it
// keeps its old one alone.
func TestFailedHandoverOfWhatSendsByNext(t *testing.T) {
	for _, c := range []struct {
		fails string
		said  []error // to make_main, the last of them on and on
		dies  bool    // the agent, between the tries
		sends bool
	}{
		{"users", []error{nil}, false, true}, {"retire", []error{nil}, false, true}, {"retire", []error{nil}, true, true},
		{"retire", []error{nil, errors.New("no answer")}, false, true}, {"retire", []error{nil, errors.New("no answer")}, true, true},
		{"make_main", []error{errors.New("no answer"), nil}, false, true},
		{"make_main", []error{errors.New("no answer")}, false, false}, {"make_main", []error{errors.New("no answer")}, true, false},
	} {
		name, said := fmt.Sprintf("%s, %v, killed %v", c.fails, c.said, c.dies), 0
		methods := map[string]guest.Handler{
			"ticks": answers(struct{}{}, nil), "connections": answers(guest.Connections{}, nil), "configure": answers(guest.Configured{EndpointIDs: []uint8{5}}, nil),
			"await_join": answers(guest.Joins{Total: 2, Joined: 2, Endpoints: []uint8{7}}, nil), "users": answers(guest.Users{}, nil), "retire": answers(struct{}{}, nil),
		}
		methods[c.fails] = answers(nil, errors.New("refused"))
		methods["make_main"] = func(context.Context, string, json.RawMessage) (any, error) {
			said++
			return struct{}{}, c.said[min(said, len(c.said))-1]
		}
		m := landing(t, talking(t, methods))
		m.a.clock, m.plan.Next[0].Endpoint = time.Now, 5
		m.rec.Edit(func(r *record.Report) { r.FirstTick = &record.Tick{} })
		if err := m.adopt(t.Context()); err == nil {
			t.Fatalf("%s: it did not fail", name)
		}
		if c.dies {
			m = killed(t, m)
			m.adopt(t.Context()) //nolint:errcheck // it fails again
		}
		m.work.adopting = time.Now().Add(-limits.Handover.For)
		if err := m.adopt(t.Context()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		h, rep := m.work.guest.Held(), m.rec.Snapshot()
		want, next, network, active := migration.Bare(m.plan.Held), migration.Bare(m.plan.Held), "tunnel", 0
		if c.sends {
			next, network, active = migration.Bare(m.plan.Next), "mptcp", 1
			want = slices.Concat(next, want)
		}
		if has := migration.Bare(h.Addresses); !slices.Equal(has, want) || h.Active != active || h.Endpoint != 7 {
			t.Errorf("%s: it has %v by NIC %d, and endpoints up to %d; want %v by NIC %d", name, has, h.Active, h.Endpoint, want, active)
		}
		if told := migration.Bare(rep.Next); rep.Network != network || !slices.Equal(told, next) || m.plan.KeepsAddress() == c.sends || m.work.keepsOld != c.sends {
			t.Errorf("%s: told network %s with %v, leased %v", name, rep.Network, told, m.work.keepsOld)
		}
		underCare(t, m.a.guests, "web", m.work.guest)
		if _, taken := m.a.takenAddresses()[m.plan.Next[0].Prefix.Addr()]; c.sends && !taken {
			t.Errorf("%s: another guest can get its next address", name)
		}
		if notes := strings.Join(rep.Notes, "\n"); strings.Contains(notes, "sends by its next address") != c.sends {
			t.Errorf("%s: %q", name, notes)
		}
	}
}

// TestKilledBeforeTheMainRoute: a next address is taken from a guest, too, whose handover fails under an agent that was
// started again, where the one before had not come to have the guest send by it.
func TestKilledBeforeTheMainRoute(t *testing.T) {
	var asked []guest.Retire
	m := landing(t, talking(t, map[string]guest.Handler{
		"ticks": answers(struct{}{}, nil), "connections": answers(guest.Connections{}, nil), "configure": answers(guest.Configured{}, nil),
		"await_join": answers(nil, errors.New("no answer")),
		"retire": func(_ context.Context, _ string, raw json.RawMessage) (any, error) {
			asked = append(asked, guest.Retire{})
			return struct{}{}, json.Unmarshal(raw, &asked[len(asked)-1])
		},
	}))
	m.a.clock = time.Now
	m.rec.Edit(func(r *record.Report) { r.FirstTick = &record.Tick{} })
	if err := m.adopt(t.Context()); err == nil {
		t.Fatal("it did not fail")
	}
	m = killed(t, m)
	m.work.adopting = time.Now().Add(-limits.Handover.For)
	if err := m.adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(asked) != 1 || !slices.Equal(asked[0].Addrs, migration.Bare([]migration.Address{{Prefix: netip.MustParsePrefix("10.2.1.10/24")}})) || !m.plan.KeepsAddress() {
		t.Errorf("asked for %+v; network %s", asked, m.plan.Network)
	}
}
