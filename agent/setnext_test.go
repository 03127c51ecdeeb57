package agent

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"godwit/migration"
	"godwit/vm/guest"
)

// asksFirst is a machine that runs once the guest was asked something, or never was.
type asksFirst struct {
	runs
	asked <-chan struct{}
	ahead *bool
}

func (m asksFirst) Cont(context.Context) error {
	select {
	case <-m.asked:
		*m.ahead = true
	case <-time.After(100 * time.Millisecond):
	}
	return nil
}

// TestNextAddressIsAskedForAhead: a guest that was made ready finds in its channel, when it runs, that it is to take its next
// address, and is asked once; where it has more to do first, or the address may be somebody's, it is asked later. One that
// cannot do it is asked again.
func TestNextAddressIsAskedForAhead(t *testing.T) {
	next := netip.MustParseAddr("10.2.1.10")
	for _, c := range []struct {
		name   string
		change func(m *incoming)
		fails  bool
		ahead  bool
		asked  int32
	}{
		{name: "ready", ahead: true, asked: 1},
		{name: "ready, and fails", fails: true, ahead: true, asked: 2},
		{name: "not ready", change: func(m *incoming) { m.work.preparation.Ready = false }, asked: 1},
		{name: "it keeps its address", change: func(m *incoming) { m.plan.Network = "tunnel" }},
		{name: "an IPv6 address", change: func(m *incoming) {
			m.plan.Next = append(m.plan.Next, migration.Address{Prefix: netip.MustParsePrefix("fd02::10/64")})
		}, asked: 1},
		{name: "somebody has it", change: func(m *incoming) { m.work.guard.note(next, "52:54:00:00:00:09", true, false) }},
		{name: "its channel is not open yet", change: func(m *incoming) { m.work.guest.speakBy((<-m.work.dialled).client) }, asked: 1},
	} {
		var asked atomic.Int32
		heard := make(chan struct{})
		g := talking(t, map[string]guest.Handler{"configure": func(context.Context, string, json.RawMessage) (any, error) {
			if asked.Add(1) == 1 {
				close(heard)
				if c.fails {
					return nil, errors.New("no such NIC")
				}
			}
			return guest.Configured{EndpointIDs: []uint8{7}}, nil
		}})
		client := g.channel()
		m := landing(t, g)
		m.work.dialled = make(chan dialled, 1)
		m.work.dialled <- dialled{client: client}
		g.speakBy(nil)
		ahead := false
		g.Machine = asksFirst{runs: runs{gone{done: make(chan struct{})}}, asked: heard, ahead: &ahead}
		m.a.feed = newFeed()
		m.plan.Next[0].Endpoint, m.work.preparation.Ready = 5, true
		m.work.guard = guardNext(t.Context(), bare(m.plan.Next), time.Hour, nil)
		if c.change != nil {
			c.change(m)
		}
		if err := m.start(t.Context()); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if ahead != c.ahead {
			t.Errorf("%s: asked before it ran: %v", c.name, ahead)
		}
		if c.asked > 0 {
			if err := errors.Join(m.connect(t.Context()), m.setNext(t.Context())); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			if id := m.plan.Next[0].Endpoint; id != 7 {
				t.Errorf("%s: endpoint %d", c.name, id)
			}
		}
		if n := asked.Load(); n != c.asked {
			t.Errorf("%s: asked %d times, want %d", c.name, n, c.asked)
		}
		m.work.guard.stop()
		m.a.actors.Wait()
	}
}
