package agent

import (
	"context"
	"errors"
	"time"

	"godwit/agent/asking"
	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/limits"
	"godwit/migration"
	"godwit/vm/guest"
)

// giveUpHandover ends a handover that failed for as long as one may take, with what the guest has by then.
func (m *incoming) giveUpHandover(ctx context.Context, failed string) error {
	switch {
	case m.sendsByNext(ctx):
		m.rec.Note(failed + "sends by its next address, and keeps its old one too, through the tunnel, until its lease ends")
		return m.handed(m.work.joins, nil)
	case m.work.mainNext:
		m.rec.Note(failed + "keeps its old address, through the tunnel; it did not say whether it sends by its next one: see in it, and reboot it if it does")
	default:
		m.rec.Note(failed + "keeps its old address, through the tunnel")
	}
	return m.stayOnOld(ctx)
}

// takeNextBack takes the next addresses from a guest whose handover has failed, and which stays on its old ones: no
// host knows that it has them, so connections on them would break at its next move, and it would answer for them
// elsewhere. It is left with them where it may send by them already, or have lost the old ones: once its main route was
// moved, as far as is known (sendsByNext), and where an agent that was started again does not know how far it was. What it does not give up is on its
// list (dropLater).
func (m *incoming) takeNextBack(ctx context.Context) {
	if !m.work.placed && !m.work.found && !m.expects.Load() {
		return
	}
	m.noteUsed()
	if m.work.mainNext || m.work.found && !m.work.known {
		m.a.log.Warn("the guest may keep its next address", "migration", m.plan.ID, "guest", m.plan.Guest)
		return
	}
	err := m.asked(ctx, m.askNextBack)
	if err == nil {
		return
	}
	m.a.log.Warn("the guest has its next address still; it is asked again", "migration", m.plan.ID, "guest", m.plan.Guest, "error", err)
	if errors.Is(err, guest.ErrBound) {
		m.a.actors.Go(m.takeNextBackLater)
		return
	}
	m.work.guest.Remember(func(h *care.Held) { h.GiveUp(migration.Bare(m.plan.Next)...) }) // handed writes it down
}

// makeMain has the guest send by its next addresses what is bound to none.
func (m *incoming) makeMain(ctx context.Context, c guest.Channel) error {
	err := m.asked(ctx, func(ctx context.Context) error {
		return c.MakeMain(ctx, m.work.guest.Held().Description.NICs[1-m.plan.Active].MAC)
	})
	if err == nil && !m.work.sends {
		m.work.sends = true
		m.noteTried()
	}
	return err
}

// sendsByNext says whether a guest whose handover has failed sends by its next addresses. It is asked to once more,
// where it may; what it said before counts where it says nothing now. It is taken to have its old ones too, and what it
// has not of them ends as what nobody needs. The next ones are its own then: nobody else gets them, and its next move
// and the end of the lease begin from there.
func (m *incoming) sendsByNext(ctx context.Context) bool {
	if !m.work.mainNext {
		return false
	}
	c, err := m.work.guest.Reach(ctx, limits.Channel)
	if err == nil {
		err = m.makeMain(ctx, c)
	}
	if err != nil {
		m.a.log.Warn("the guest does not say by which address it sends", "migration", m.plan.ID, "guest", m.plan.Guest, "sends_by_next", m.work.sends, "error", err)
	}
	m.work.keepsOld = m.work.sends
	return m.work.sends
}

// noteUsed keeps the numbers that were used up: peers have heard of them.
func (m *incoming) noteUsed() {
	m.work.guest.Remember(func(h *care.Held) { h.Table, h.Endpoint = m.table(), m.lastEndpoint() })
}

// askNextBack asks the guest. It refuses where a connection has nothing else that works (guest.ErrBound).
func (m *incoming) askNextBack(ctx context.Context) error {
	g := m.work.guest
	if g.Held().Description.Silent() {
		return g.Channel().DropAddress(ctx, migration.Bare(m.plan.Next)...)
	}
	p := guest.Retire{Addrs: migration.Bare(m.plan.Next), MAC: g.Held().Description.NICs[1-m.plan.Active].MAC}
	for _, addr := range m.plan.Next {
		if addr.Endpoint != 0 {
			p.EndpointIDs = append(p.EndpointIDs, addr.Endpoint)
		}
	}
	if m.work.joins != nil {
		p.EndpointIDs = append(p.EndpointIDs, m.work.joins.Endpoints...)
	}
	channel, err := g.Reach(ctx, limits.Channel)
	if err != nil {
		return err
	}
	return channel.Retire(ctx, p)
}

// takeNextBackLater asks a guest in which a connection needs the address, for as long as a lease lasts or until it
// moves on. Then it is to give it up all the same.
func (m *incoming) takeNextBackLater() {
	g := m.work.guest
	for until := time.Now().Add(config.DefaultLease); time.Now().Before(until) && sleep(m.a.ctx, asking.DeafPause) && g.Alive(); {
		if done, err := m.askBoundBack(); done {
			return
		} else if !errors.Is(err, guest.ErrBound) {
			break
		}
	}
	g.Remember(func(h *care.Held) { h.GiveUp(migration.Bare(m.plan.Next)...) })
	if err := m.a.guests.SaveIfHere(g); err != nil { // it may have moved on meanwhile
		m.a.log.Warn("keep guest", "guest", m.plan.Guest, "error", err)
	}
}

// askBoundBack is askNextBack for a guest that no other migration has; one that is asked for meanwhile waits.
func (m *incoming) askBoundBack() (done bool, err error) {
	g := m.work.guest
	g.LockAddresses()
	defer g.UnlockAddresses()
	if busy := g.Migration(); busy != "" && busy != m.plan.ID {
		return false, nil
	}
	err = m.asked(m.a.ctx, m.askNextBack)
	return err == nil, err
}
