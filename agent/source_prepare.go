package agent

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"godwit/agent/detour"
	"godwit/agent/ends"
	"godwit/agent/handed"
	"godwit/agent/lanes"
	"godwit/agent/limits"
	"godwit/agent/record"
	"godwit/agent/talk"
	"godwit/internal/clock"
	"godwit/migration"
	"godwit/netstate"
	"godwit/netstate/tunnel"
	"godwit/vm/guest"
)

// prepareThere has the destination make everything ready.
func (m *outgoing) prepareThere(ctx context.Context) error {
	private, public, err := tunnel.NewKey()
	if err != nil {
		return err
	}
	end, err := m.tunnelConfig(private)
	if err != nil {
		return err
	}
	m.work.prepared = talk.Prepared{}
	m.work.laneKey = lanes.NewKey()
	n, _ := m.a.config.Peer(m.plan.To)
	var offers []talk.PathTunnel
	if m.plan.Direct() && !m.plan.Insecure {
		if offers, m.work.memoryTunnels, err = ends.OfferMemory(m.a.config, m.plan.ID, m.paths(n), m.work.memoryMTUs, nil, nil); err != nil {
			return err
		}
	}
	used, err := tunnel.InnerUsed(talk.MostInner)
	if err != nil {
		return err
	}
	request := talk.Preparation{
		InnerUsed: used, MemoryTunnels: offers, LaneKey: m.work.laneKey,
		Plan: m.plan, Description: m.guest.Held().Description, Facts: m.work.facts, Touched: m.work.offer.Touched,
		Endpoint: m.guest.Held().Endpoint, Table: m.guest.Held().Table,
		TunnelKey: public, Tunnel: end.Local, TunnelTo: m.work.guestPath.Remote, Window: m.work.window,
		Routers: m.routersOf(), ToDrop: m.guest.Held().ToDrop, Boot: m.work.boot,
	}
	if channels := channelsOver(m.plan, len(m.paths(n))); channels > multifdLeast { // a destination of an earlier release has those
		request.Channels = channels
	}
	if err := m.call(ctx, "prepare", request, &m.work.prepared); err != nil {
		return err
	}
	if err := m.work.prepared.Check(m.plan); err != nil {
		return err
	}
	if err := m.work.prepared.Believe(m.a.config, m.plan, m.work.memoryTunnels); err != nil {
		return err
	}
	end.Remote = m.work.prepared.Tunnel
	if end.PeerKey, err = tunnel.ParseKey(m.work.prepared.TunnelKey); err != nil {
		return &migration.Problem{Code: migration.CodePeer, Text: "prepare: the destination's tunnel key is not one"}
	}
	if err := ends.InnerFree(m.a.config, end); err != nil {
		return err
	}
	return m.a.detours.Change(m.plan.Guest, func(all map[string]*detour.Detour) {
		all[m.detourID()] = &detour.Detour{
			ID: m.detourID(), Guest: m.plan.Guest, Peer: m.plan.To, Tunnel: end, Up: clock.Now(),
		}
	})
}

// tunnelConfig is this end of the tunnel, without the other.
func (m *outgoing) tunnelConfig(private tunnel.Key) (tunnel.Config, error) {
	if err := m.a.ownName(m.plan.ID); err != nil {
		return tunnel.Config{}, err
	}
	return ends.New(m.a.config, m.plan.ID, m.plan.Tunnel, m.work.guestPath.Local, private)
}

// prepareHere makes this end of the tunnel and tries it with a full packet, and begins to
// open lanes. For the clients nothing has changed when it ends.
func (m *outgoing) prepareHere(ctx context.Context) error {
	defer m.readyGuest(ctx)()
	if err := m.openLanes(); err != nil { // they are being opened while the tunnel is
		return err
	}
	d, ok := m.a.detours.Get(m.detourID())
	if !ok {
		return fmt.Errorf("no tunnel was agreed on")
	}
	t, err := ends.Up(ctx, d.Tunnel)
	if err != nil {
		return err
	}
	m.rec.Edit(func(r *record.Report) { r.TunnelUp = m.rec.Now() })
	if err := t.Verify(ctx); err != nil {
		return &migration.Problem{Code: migration.CodePath, Text: fmt.Sprintf(
			"tunnel %s → %s does not carry packets: %v; is UDP port %d open?", m.plan.From, m.plan.To, err, d.Tunnel.Remote.Port())}
	}
	m.work.tunnelUsed = time.Now()
	if err := m.raiseDirect(ctx); err != nil {
		return err
	}
	m.work.tunnel = d.Tunnel.Name
	m.noteVisits()
	return m.leadAway()
}

// leadAway says what the detour will lead to the destination: all that does not go home.
func (m *outgoing) leadAway() error {
	g, found := m.guest, false
	nics := g.Held().Description.NICs
	var other net.HardwareAddr // its neighbours may have heard of either
	if len(nics) == 2 {
		other = nics[1-g.Held().Active].Hardware()
	}
	err := m.a.detours.Change(m.plan.Guest, func(all map[string]*detour.Detour) {
		var d *detour.Detour
		if d, found = all[m.detourID()]; !found {
			return
		}
		d.Taps = g.Held().Taps
		d.Away, d.Leaving = nil, nil
		for _, addr := range m.plan.Held {
			if addr.Home == m.plan.To || m.givenBack(addr.Prefix.Addr()) { // it is going home
				if m.plan.FromSite == m.plan.ToSite {
					d.Leaving = append(d.Leaving, netstate.Visiting{Addr: addr.Prefix.Addr(), Known: other})
				} else if m.a.config.Routes != nil { // who heard of it by BGP sends it here for a while
					d.Leaving = append(d.Leaving, netstate.Visiting{Addr: addr.Prefix.Addr()})
				}
				continue
			}
			away := netstate.Away{
				Addr: addr.Prefix.Addr(), MAC: nics[g.Held().Active].Hardware(),
				Known: other, Tap: g.Held().Taps[g.Held().Active], Tunnel: d.Tunnel.Name, Fits: m.plan.Fits,
			}
			if addr.Home == m.a.config.Host {
				away.Gateway, away.Subnet = addr.Gateway, m.a.config.Network.OnLink(addr.Prefix)
			}
			d.Away = append(d.Away, away)
		}
	})
	if err == nil && !found {
		err = fmt.Errorf("the tunnel that was agreed on has ended")
	}
	return err
}

// canBeReady says whether the guest can do beforehand what of the handover nobody notices.
func (m *outgoing) canBeReady() bool {
	return !m.plan.KeepsAddress() && slices.Contains(m.work.capabilities, guest.CapReady)
}

// readyGuest has the guest do beforehand what of the handover nobody notices, and returns
// what waits for it. A guest that cannot, or fails, does it in the handover.
func (m *outgoing) readyGuest(ctx context.Context) (wait func()) {
	if !m.canBeReady() {
		return func() {}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = m.rec.Timed("ready guest", func() error { return m.askReady(ctx) }) // it was said
	}()
	return func() { <-done }
}

// askReady asks the guest to be ready, or to stay so.
func (m *outgoing) askReady(ctx context.Context) error {
	m.work.readied = time.Now()
	c := handed.Configure(m.guest.Held(), m.a.config.Network, 1-m.plan.Active, m.plan.Next, handed.NextTable(m.guest.Held().Table), false)
	ask, cancel := limits.Ready.On(ctx)
	defer cancel()
	channel, err := m.guest.Reach(ask, limits.Ready)
	if err == nil {
		err = channel.Ready(ask, c)
	}
	if err = limits.Says(ask, err); err != nil && ctx.Err() == nil {
		m.a.log.Info("the guest was not made ready", "migration", m.plan.ID, "error", err)
	}
	return err
}

const (
	// readyAgain is between two times that a guest is asked to be ready: it stays so for ten minutes.
	readyAgain = 3 * time.Minute
	// awakeAgain is between two echoes through a tunnel that carries nothing yet. WireGuard's keys are good for three
	// minutes after their handshake, which is made anew after two of them where something is sent (Donenfeld,
	// WireGuard, NDSS 2017, §6.1); else the clients' first packets wait for it, and only some of them.
	awakeAgain = 30 * time.Second
)

// stayReady has the guest and the tunnel stay ready while something is done that may take long. At its end nothing
// is asked any more: what a guest has not done when it is stopped it does first where it arrives.
func (m *outgoing) stayReady(ctx context.Context, do func(context.Context) error) error {
	repeating, end := context.WithCancel(ctx)
	var repeats sync.WaitGroup
	defer func() { end(); repeats.Wait() }()
	repeats.Go(func() {
		for sleep(repeating, time.Until(m.work.tunnelUsed.Add(awakeAgain))) {
			m.wakeTunnel(repeating)
		}
	})
	if m.canBeReady() {
		repeats.Go(func() {
			for sleep(repeating, time.Until(m.work.readied.Add(readyAgain))) {
				_ = m.askReady(repeating)
			}
		})
	}
	return do(ctx)
}

// wakeTunnel has a packet go through the tunnel and back, so that both ends have keys, and
// what lies between them lets the tunnel's packets pass.
func (m *outgoing) wakeTunnel(ctx context.Context) {
	m.work.tunnelUsed = time.Now()
	d, ok := m.a.detours.Get(m.detourID())
	if !ok {
		return
	}
	try, cancel := limits.TryTunnel.On(ctx)
	defer cancel()
	if err := echo(try, d.Tunnel); err != nil && ctx.Err() == nil {
		m.a.log.Warn("nothing came back through the tunnel", "migration", m.plan.ID, "tunnel", d.Tunnel.Name, "error", err)
	}
}

// unreadyGuest undoes readyGuest, and waits for nobody. It asks whether or not the guest was made ready: an agent that
// was started again does not know, and a guest that cannot be ready refuses. One that does not answer
// keeps a NIC that is up, with an address of which nobody is told, until its program undoes that by itself.
func (m *outgoing) unreadyGuest() {
	g := m.guest
	spare := 1 - m.plan.Active
	if m.plan.KeepsAddress() || g.Held().Description.Silent() || !g.Alive() || spare < 0 || spare >= len(g.Held().Description.NICs) {
		return
	}
	c := guest.Configure{MAC: g.Held().Description.NICs[spare].MAC}
	go func() {
		ctx, cancel := limits.Unready.On(m.a.ctx)
		defer cancel()
		channel, err := g.Reach(ctx, limits.Unready)
		if err == nil {
			err = channel.Ready(ctx, c)
		}
		if err != nil {
			m.a.log.Info("the guest's spare NIC was not put back", "migration", m.plan.ID, "error", limits.Says(ctx, err))
		}
	}()
}
