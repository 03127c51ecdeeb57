package agent

import (
	"context"
	"time"

	"godwit/vm/guest"
)

// takeNextBack takes the next addresses from a guest whose handover has failed, and which stays on its old ones: no
// host knows that it has them, so connections on them would break at its next move, and it would answer for them
// elsewhere. It is left with them where it may send by them already, or have lost the old ones: once its main route was
// moved, and where an agent that was started again does not know how far it was. What fails is tried again beside
// everything else.
func (m *incoming) takeNextBack(ctx context.Context) {
	if !m.work.placed {
		return
	}
	m.noteUsed()
	if m.work.mainNext || m.work.again {
		m.a.log.Warn("the guest may keep its next address", "migration", m.plan.ID, "guest", m.plan.Guest)
		return
	}
	if err := m.asked(ctx, m.askNextBack); err != nil {
		m.a.log.Warn("the guest has its next address still; it is asked again", "migration", m.plan.ID, "guest", m.plan.Guest, "error", err)
		m.a.actors.Go(m.takeNextBackLater)
	}
}

// noteUsed keeps the numbers that were used up: peers have heard of them.
func (m *incoming) noteUsed() {
	m.work.guest.remember(func(h *Held) { h.Table, h.Endpoint = m.table(), m.lastEndpoint(m.work.joins) })
}

// askNextBack asks the guest. It refuses where a connection has nothing else that works (guest.ErrBound).
func (m *incoming) askNextBack(ctx context.Context) error {
	g := m.work.guest
	if g.Held.Description.silent() {
		return g.channel().DropAddress(ctx, bare(m.plan.Next)...)
	}
	p := guest.Retire{Addrs: bare(m.plan.Next), MAC: g.Held.Description.NICs[1-m.plan.Active].MAC}
	for _, addr := range m.plan.Next {
		if addr.Endpoint != 0 {
			p.EndpointIDs = append(p.EndpointIDs, addr.Endpoint)
		}
	}
	if m.work.joins != nil {
		p.EndpointIDs = append(p.EndpointIDs, m.work.joins.Endpoints...)
	}
	channel, err := g.reach(ctx, limitChannel)
	if err != nil {
		return err
	}
	return channel.Retire(ctx, p)
}

// takeNextBackLater asks for as long as a lease lasts, until the guest has let go, moves on, or is gone.
func (m *incoming) takeNextBackLater() {
	g := m.work.guest
	again := func() (done bool) {
		g.ending.Lock() // a migration that is asked for meanwhile waits
		defer g.ending.Unlock()
		if busy := g.migration(); busy != "" && busy != m.plan.ID || !g.alive() {
			return true
		}
		return m.asked(m.a.ctx, m.askNextBack) == nil
	}
	for until := time.Now().Add(leaseTime); time.Now().Before(until) && sleep(m.a.ctx, deafPause); {
		if again() {
			return
		}
	}
}
