package agent

import (
	"context"
	"slices"
	"time"

	"godwit/agent/care"
	"godwit/agent/limits"
	"godwit/migration"
	"godwit/vm/guest"
)

// This file has the guest tell its clients of its next address just before it leaves. They come there a round trip
// later: what they say first waits in the destination's taps by then, as what comes to the old address does, and is
// answered as the guest wakes. Told by a guest that has arrived they would come a round trip after that.

// longestPause is for how long clients' first packets may wait for a guest: one that stands still for longer tells them
// once it has arrived. The kernel of a router gives up to find who has an address after 3 s, and tells who asked for
// it.
const longestPause = 2 * time.Second

// tells says whether the guest is to tell its clients before it leaves.
func (m *outgoing) tells() bool {
	named := slices.ContainsFunc(m.plan.Next, func(next migration.Address) bool { return next.Endpoint != 0 })
	here := slices.ContainsFunc(m.plan.Next, func(next migration.Address) bool { return m.a.config.Network.OnLink(next.Prefix).IsValid() }) // its spare NIC would be asked
	return named && !here && !m.plan.KeepsAddress() && m.plan.Mode != "stopcopy" && m.plan.Downtime <= longestPause &&
		m.work.accepted.Expects && slices.Contains(m.work.capabilities, guest.CapTell)
}

// tellClients has the guest tell its clients, and returns what waits until it has, for limits.Tell at most. Where no
// lane carries its memory it may not leave (copyOn), and they would look for it in vain.
func (m *outgoing) tellClients(ctx context.Context) (wait func()) {
	c, expected := m.guest.Channel(), m.work.expected
	if m.work.expected = nil; c == nil || expected == nil || !<-expected || m.laneless() {
		return func() {}
	}
	m.work.told = true // or may be, whatever the guest answers
	told := make(chan struct{})
	go func() {
		defer close(told)
		mac := m.guest.Held().Description.NICs[1-m.plan.Active].MAC
		err := m.rec.Timed("tell clients", func() error {
			return limits.Tell.Do(ctx, func(ctx context.Context) error { return c.Tell(ctx, mac) })
		})
		if err != nil && ctx.Err() == nil {
			m.a.log.Info("the guest did not tell clients of its next address before it left", "migration", m.plan.ID, "error", err)
		}
	}()
	return func() { <-told }
}

// spendIDs keeps the numbers by which the guest may have told its clients of an address that it does not get: they believe
// what they hear by others.
func (m *outgoing) spendIDs() {
	led := []migration.Effect{migration.Flip, migration.Pause, migration.Release} // an agent before this one may have come to that
	if !m.work.told && !slices.Contains(led, m.state.Reached()) {
		return
	}
	m.guest.Remember(func(h *care.Held) {
		for _, next := range m.plan.Next {
			if next.Endpoint != 0 {
				h.Endpoint = next.Endpoint
			}
		}
	})
	if err := m.a.guests.SaveIfHere(m.guest); err != nil {
		m.a.log.Warn("keep guest", "guest", m.plan.Guest, "error", err)
	}
}
