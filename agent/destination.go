package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"godwit/agent/peer"
	"godwit/internal/clock"
	"godwit/migration"
	"godwit/netstate"
	"godwit/netstate/hold"
	"godwit/netstate/tunnel"
	"godwit/transfer"
	"godwit/vm"
	"godwit/vm/guest"
	"godwit/vm/qemu"
)

// destinationWork is what a destination's effects made and later ones use.
type destinationWork struct {
	preparation Preparation
	prepared    Prepared
	guest       *Guest
	dialled     chan dialled // the guest's channel, once it answers
	first       chan *Tick   // the guest's first tick here
	holdStream  *transfer.HoldListener
	stopLoading context.CancelFunc
	endpoints   []endpointAt // announced for a direct transfer
	turn        turnstile
	kept        bool        // the guest still has its old addresses, as something needs them
	queue       *hold.Queue // of the active tap, watched since it was made
}

type dialled struct {
	client *guest.Client
	err    error
}

func (w *destinationWork) stop() {
	if w.stopLoading != nil {
		w.stopLoading()
	}
	if w.holdStream != nil {
		w.holdStream.Close()
	}
	if w.queue != nil {
		w.queue.Close()
		w.queue = nil
	}
}

func (m *incoming) perform(ctx context.Context, e migration.Effect) error {
	switch e {
	case migration.Receive:
		ctx, cancel := context.WithTimeout(ctx, 25*time.Second)
		defer cancel()
		return m.receive(ctx)
	case migration.StartGuest:
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		return m.start(ctx)
	case migration.Adopt:
		if m.guestEnded() {
			return m.adoptEnded()
		}
		return m.adopt(ctx)
	case migration.Leave:
		if m.guestEnded() {
			return m.leaveEnded(ctx)
		}
		return m.leave(ctx)
	case migration.SendBack:
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		return m.sendBack(ctx)
	}
	return fmt.Errorf("effect %q: unknown", e)
}

// receive makes everything ready: taps with their long queues (the hold), the
// tunnel's end, what the kernel needs for a visitor, and QEMU, which waits.
func (m *incoming) receive(ctx context.Context) error {
	a, p := m.a, m.work.preparation
	g := &Guest{Held: Held{
		Description: p.Description.elsewhere(), Active: m.plan.Active, Addresses: m.plan.Held,
		Epoch: m.plan.Epoch, Endpoint: p.Endpoint, Table: p.Table,
	}}
	a.guests.expect(g)
	g.Held.Dir = a.guestDir(m.plan.Guest, fmt.Sprint(m.plan.Epoch))
	m.work.guest = g
	if err := m.makeDisks(); err != nil {
		return err
	}
	if err := a.openTaps(g); err != nil {
		return err
	}
	queue, err := hold.Watch(g.Held.Taps[g.Held.Active])
	if err != nil {
		a.log.Warn("held packets are not counted", "migration", m.plan.ID, "error", err)
	}
	m.work.queue = queue
	if err := m.makeDetour(ctx); err != nil {
		return err
	}
	machine, err := m.startQEMU(ctx)
	if err != nil {
		return &migration.Problem{Code: migration.CodeHypervisor, Text: fmt.Sprintf("host %s refuses guest %s: %v", a.config.Host, m.plan.Guest, err)}
	}
	g.Machine = machine
	if err := machine.PrepareIncoming(ctx, m.options()); err != nil {
		return err
	}
	if err := m.exportDisks(ctx); err != nil {
		return err
	}
	m.await1()
	return m.prepareDirect(ctx)
}

// startQEMU starts it waiting for the guest's memory.
func (m *incoming) startQEMU(ctx context.Context) (*qemu.Process, error) {
	g, facts := m.work.guest, m.work.preparation.Facts
	if len(g.Held.Description.Start) > 0 {
		return startWaiting(ctx, g)
	}
	spec, err := m.a.spec(g, true)
	if err != nil {
		return nil, err
	}
	spec.Machine, spec.CPU, spec.Accel = facts.Machine, facts.CPU, facts.Accel
	return qemu.Start(ctx, spec)
}

// makeDetour makes this end of the tunnel and leads the guest's old addresses to
// its taps here, where packets wait until it runs.
func (m *incoming) makeDetour(ctx context.Context) error {
	a, p, g := m.a, m.work.preparation, m.work.guest
	n, ok := a.config.find(m.plan.From, a.config.Host)
	if !ok {
		return &migration.Problem{Code: migration.CodeUnknownSite, Text: fmt.Sprintf("host %s does not know host %s", a.config.Host, m.plan.From)}
	}
	local, _, ok := a.config.guestPath(n)
	if !ok {
		return &migration.Problem{Code: migration.CodePath, Text: "no uplink carries guests' traffic"}
	}
	private, public, err := tunnel.NewKey()
	if err != nil {
		return err
	}
	config, err := a.tunnelEnd(m.plan.ID, m.plan.Tunnel, local.Address, private)
	if err != nil {
		return err
	}
	if config.Kind == tunnel.VXLAN {
		config.Local = netip.AddrPortFrom(local.Address, p.Tunnel.Port())
	}
	if config.PeerKey, err = tunnel.ParseKey(p.TunnelKey); err != nil {
		return &migration.Problem{Code: migration.CodeUsage, Text: "prepare: the tunnel's key is not one"}
	}
	config.Remote = p.Tunnel
	if _, err := tunnel.Up(ctx, config); err != nil {
		return err
	}
	m.work.prepared = Prepared{TunnelKey: public, Tunnel: config.Local}
	err = a.detours.change(m.plan.Guest, func(all map[string]*detour) {
		d := &detour{ID: m.plan.ID, Guest: m.plan.Guest, Peer: m.plan.From, Tunnel: config, Up: clock.Now(), Taps: g.Held.Taps}
		for _, addr := range m.plan.Held {
			v := netstate.Visiting{
				Addr: addr.Prefix.Addr(), MAC: g.Held.Description.NICs[g.Held.Active].hardware(),
				Tap: g.Held.Taps[g.Held.Active], Taps: g.Held.Taps, Gateway: addr.Gateway, Tunnel: config.Name,
			}
			if home, sent := wayOf(all, m.plan.Guest, v.Addr); sent || addr.Home == a.config.Host {
				v.Tunnel = home
				if addr.Home == a.config.Host {
					v.Tunnel = ""
				}
				d.Coming = append(d.Coming, v)
				continue
			}
			d.Visiting = append(d.Visiting, v)
		}
		forgetAway(all, m.plan)
		all[d.ID] = d
		m.work.prepared.Coming = len(d.Coming) > 0
	})
	return err
}

// wayOf says whether this host sends addr away for guest, and by which tunnel it
// came here before that.
func wayOf(all map[string]*detour, guest string, addr netip.Addr) (home string, sent bool) {
	for _, d := range all {
		if d.Guest != guest {
			continue
		}
		sent = sent || slices.ContainsFunc(d.Away, func(a netstate.Away) bool { return a.Addr == addr })
		for _, v := range d.Visiting {
			if v.Addr == addr {
				home = v.Tunnel
			}
		}
	}
	return home, sent && home != ""
}

// forgetAway drops what this home still sends away of a guest that does not hold
// the address any more: nobody can want it.
func forgetAway(all map[string]*detour, plan migration.Plan) {
	held := bare(plan.Held)
	for _, other := range all {
		if other.Guest == plan.Guest {
			other.Away = slices.DeleteFunc(other.Away, func(a netstate.Away) bool { return !slices.Contains(held, a.Addr) })
		}
	}
}

func (m *incoming) incomingSocket() string { return filepath.Join(m.work.guest.Held.Dir, "in.sock") }

func (m *incoming) options() vm.MigrateOptions {
	opts := migrateOptions(m.plan, 0)
	opts.URI = "unix:" + m.incomingSocket()
	return opts
}

// await1 watches for the last byte of memory, and dials the guest's channel so
// that its first tick is heard.
func (m *incoming) await1() {
	ctx, cancel := context.WithCancel(m.a.ctx)
	m.work.stopLoading = cancel
	machine := m.work.guest.Machine
	go func() {
		in := migration.Input{Kind: migration.LoadedAll}
		if p, err := machine.AwaitMigration(ctx); err != nil {
			if ctx.Err() != nil {
				return
			}
			in = migration.Input{Kind: migration.Fault, Problem: &migration.Problem{Code: migration.CodeHypervisor, Text: fmt.Sprintf(
				"guest %s did not arrive whole on %s: %v %s", m.plan.Guest, m.plan.To, err, p.Error)}}
		}
		m.rec.edit(func(r *Report) { r.MemoryDone = time.Now().UnixNano() })
		m.tell(ctx, in) //nolint:errcheck // it ends with ctx
	}()
	m.work.dialled, m.work.first = make(chan dialled, 1), make(chan *Tick, 1)
	go func() {
		c, err := guest.Dial(ctx, machine.GuestChannel())
		m.work.dialled <- dialled{c, err}
		if err == nil {
			m.work.first <- firstTick(ctx, c)
		}
	}()
}

func firstTick(ctx context.Context, c *guest.Client) *Tick {
	limit := time.After(5 * time.Second)
	for {
		select {
		case e, ok := <-c.Events():
			if !ok {
				return nil
			}
			if e.Name == guest.EventTick {
				return &Tick{N: e.N, At: e.At.UnixNano()}
			}
		case <-limit:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// serveStream hands one stream of memory to the waiting QEMU.
func (m *incoming) serveStream(s *peer.Stream) {
	if s.Header.Kind == "disk" && m.work.guest != nil {
		m.serveDisk(s)
		return
	}
	if s.Header.Kind != "memory" || m.work.guest == nil {
		return
	}
	// QEMU tells its streams apart by the order in which they come.
	if !m.work.turn.await(m.a.ctx, s.Header.Number) {
		return
	}
	passed := func() { m.work.turn.pass(s.Header.Number) }
	if s.Header.Number == 0 {
		courtesy(m.a.ctx, m.work.guest.Machine)
	}
	if err := transfer.ServeStream(m.a.ctx, heardStream{s, m.hear}, m.incomingSocket(), passed); err != nil {
		m.a.log.Info("stream ended", "migration", m.plan.ID, "number", s.Header.Number, "error", err)
	}
}

// start lets the guest run here: it was let go, and every byte is here.
func (m *incoming) start(ctx context.Context) error {
	g := m.work.guest
	m.countHeld()
	err := m.endExports(ctx)
	if err == nil {
		err = m.rec.timed("start guest", func() error { return g.Machine.Cont(ctx) })
	}
	if err != nil && !m.ranAnyway() {
		// Refused: the source takes the guest back, so it must never run here.
		return errors.Join(err, g.Machine.Quit(context.WithoutCancel(ctx)))
	}
	now := time.Now().UnixNano()
	m.rec.edit(func(r *Report) { r.Resumed = now })
	m.rec.add(Event{Kind: "event", Name: migration.TargetResume, At: now})
	if err := m.a.guests.keep(g); err != nil {
		m.a.log.Error("keep guest", "guest", g.name(), "error", err)
	}
	return nil
}

// ranAnyway says whether the guest runs although starting it gave an error.
func (m *incoming) ranAnyway() bool {
	ctx, cancel := context.WithTimeout(m.a.ctx, 5*time.Second)
	defer cancel()
	status, err := m.work.guest.Machine.Status(ctx)
	return err == nil && status == vm.Running
}

// countHeld notes how many packets wait for the guest.
func (m *incoming) countHeld() {
	if m.work.queue == nil {
		return
	}
	if waiting, _, err := m.work.queue.Frames(); err == nil {
		held := int64(waiting) //nolint:gosec // a queue's length
		m.rec.edit(func(r *Report) { r.Held = &held })
	}
}

// sendBack undoes everything here. Packets that waited for the guest go back to
// where it runs.
func (m *incoming) sendBack(ctx context.Context) error {
	m.work.stop()
	g := m.work.guest
	var err error
	if g != nil {
		if g.Machine != nil {
			err = g.Machine.Quit(ctx)
		}
		if d, ok := m.a.detours.get(m.plan.ID); ok {
			for _, t := range g.Taps {
				frames, rerr := hold.ReadLeft(t)
				if rerr == nil && len(frames) > 0 {
					_, rerr = hold.Resend(frames, d.Tunnel.Name)
				}
				err = errors.Join(err, rerr)
			}
		}
		m.a.discard(g)
	}
	err = errors.Join(err, m.dropDisks())
	err = errors.Join(err, m.a.detours.sendAway(m.plan.ID), m.a.detours.remove(ctx, m.plan.ID))
	return errors.Join(err, m.endDirect(ctx), m.a.dropTunnel(ctx, tunnelName(m.plan.ID)))
}

// bare are the addresses without their subnets, each once.
func bare(all []migration.Address) []netip.Addr {
	out := make([]netip.Addr, 0, len(all))
	for _, a := range all {
		if !slices.Contains(out, a.Prefix.Addr()) {
			out = append(out, a.Prefix.Addr())
		}
	}
	return out
}
