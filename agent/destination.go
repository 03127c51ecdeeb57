package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"godwit/agent/addresses"
	"godwit/agent/care"
	"godwit/agent/described"
	"godwit/agent/disks"
	"godwit/agent/guests"
	"godwit/agent/lanes"
	"godwit/agent/limits"
	"godwit/agent/line"
	"godwit/agent/peer"
	"godwit/agent/record"
	"godwit/agent/talk"
	"godwit/agent/uplinks"
	"godwit/migration"
	"godwit/netstate/hold"
	"godwit/transfer"
	"godwit/transfer/paths"
	"godwit/transfer/proxy"
	"godwit/vm"
	"godwit/vm/guest"
	"godwit/vm/qemu"
)

// destinationWork is what a destination's effects made and later ones use.
type destinationWork struct {
	// of receive
	preparation   talk.Preparation
	prepared      talk.Prepared
	guest         *guests.Guest
	found         bool         // an earlier agent began this
	dialled       chan dialled // the guest's channel, once it is open
	queue         *hold.Queue  // of the active tap, watched since it was made
	holdStream    *transfer.HoldListener
	lanes         *proxy.Destination // of our own data path; under incoming.mu
	endpoints     []uplinks.Endpoint // announced for a direct transfer, or for mptcp
	stopMultipath context.CancelFunc // ends the listener of mptcp
	stopLoading   context.CancelFunc
	turn          turnstile

	// of disks
	intake  *disks.Intake // of those that come; under incoming.mu
	arrived disks.Arrived // files of disks that were made here

	// of the start
	started      atomic.Bool    // QEMU was made to run the guest
	kept         bool           // it has ended, and what it was is kept, or never will be
	listedBefore <-chan listing // the guest's connections as it woke here

	// of the handover
	adopting time.Time             // when it was first tried
	trouble  error                 // of its last try that was not cut off
	guard    guard                 // of the next addresses, until they are set
	taken    map[netip.Addr]string // next addresses that others have, and who; nil: not known yet
	placed   bool                  // the guest may have its next addresses
	mainNext bool                  // and send by them
	sends    bool                  // and said that it does
	known    bool                  // what an earlier agent came to with all that is in the journal
	joins    *guest.Joins          // how its connections followed
	used     uint8                 // the last endpoint id that telling clients again has used, or may have; 0: none
	keepsOld bool                  // it still has its old addresses, as something needs them
	named    *telling              // nil: the name server is not told
	survey   *record.Survey        // of a handover that is done, but perhaps not written down; nil: it is not
}

// guard is asked by who expects the guest, too.
type guard = atomic.Pointer[addresses.Guard]

type dialled struct {
	client guest.Channel
	err    error
}

func (w *destinationWork) stop() {
	w.guard.Load().Stop()
	if w.stopLoading != nil {
		w.stopLoading()
	}
	if w.holdStream != nil {
		w.holdStream.Close()
	}
	if w.lanes != nil {
		w.lanes.Close()
	}
	if w.stopMultipath != nil {
		w.stopMultipath()
	}
	if w.intake != nil {
		w.intake.Stop()
	}
	w.arrived.Close() // nobody writes to them any more
	if w.queue != nil {
		w.queue.Close()
		w.queue = nil
	}
}

func (m *incoming) perform(ctx context.Context, e migration.Effect) error {
	switch e {
	case migration.Receive:
		return m.waitingEnded(ctx, limits.Receive.Do(ctx, m.receive))
	case migration.StartGuest:
		return m.start(ctx)
	case migration.Adopt:
		if m.guestEnded() {
			return m.adoptEnded()
		}
		return m.adopt(ctx)
	case migration.Leave:
		if err := m.returned(); err != nil {
			return err
		}
		if m.guestEnded() {
			return m.leaveEnded(ctx)
		}
		m.noteStays(ctx)
		err := m.leave(ctx)
		if err == nil { // in which its last pages came, and connections ended
			m.noteStays(ctx)
		}
		return err
	case migration.SendBack:
		return limits.SendBack.Do(ctx, m.sendBack)
	}
	return fmt.Errorf("effect %q: unknown", e)
}

// receive makes everything ready: taps with their long queues (the hold), the
// tunnel's end, what the kernel needs for a visitor, and QEMU, which waits.
func (m *incoming) receive(ctx context.Context) error {
	m.rec.Event(migration.MigrationStart)
	a := m.a
	if err := a.roomForAll(m.offer, m.order); err != nil { // more may be on their way than when it was asked
		return err
	}
	g := guests.New(m.expected(), nil)
	if err := a.guests.Expect(g); err != nil {
		return err
	}
	m.dir = g.Held().Dir
	m.setGuest(g)
	if err := a.arrives(m.plan.Guest); err != nil {
		return err
	}
	if err := m.makeDisks(); err != nil {
		return err
	}
	if err := a.openTaps(g); err != nil {
		return err
	}
	queue, err := hold.Watch(g.Held().Taps[g.Held().Active])
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
	g.RunsIn(machine)
	m.primeTaps(g)
	if err := m.compareMachines(ctx, machine); err != nil {
		return err
	}
	m.show(g)
	if g.Held().Description.Silent() {
		g.SpeakBy(a.fromOutside(g))
	}
	if err := machine.PrepareIncoming(ctx, m.options()); err != nil {
		return m.startedApart(ctx, machine, err)
	}
	if err := m.exportDisks(ctx); err != nil {
		return m.startedApart(ctx, machine, err)
	}
	if err := m.awaitLanes(); err != nil {
		return err
	}
	m.watchArrival()
	if !m.plan.KeepsAddress() {
		m.work.guard.Store(addresses.Watch(a.ctx, migration.Bare(m.plan.Next), guardEvery, m.probeNext))
	}
	return m.prepareDirect(ctx)
}

// waitingEnded explains why receive failed by the end of the QEMU that was to wait: all else that was asked of it comes
// of that.
func (m *incoming) waitingEnded(ctx context.Context, err error) error {
	g := m.work.guest
	if err == nil || ctx.Err() != nil || g == nil || g.Machine() == nil || !endedBy(g.Machine(), err) {
		return err
	}
	return &migration.Problem{Code: migration.CodeHypervisor, Text: fmt.Sprintf(
		"guest %s: its QEMU on %s, which was to wait for it, was killed or broke (%s); try again", m.plan.Guest, m.plan.To, cmp.Or(g.Machine().Exit().Detail, err.Error()))}
}

// primeTaps has the QEMU that waits read a frame of no meaning from each tap: it reads one though its guest
// does not run, none before that is gone, and loses it when the guest does (net/tap.c, tap_send). It would be
// the first that is held.
func (m *incoming) primeTaps(g *guests.Guest) {
	for _, tap := range g.Held().Taps {
		if err := hold.Mark(tap); err != nil {
			m.a.log.Info("the first packet that is held may be lost", "migration", m.plan.ID, "error", err)
		}
	}
}

// expected is what receive makes of the guest, before it has a tap.
func (m *incoming) expected() care.Held {
	p := m.work.preparation
	return care.Held{
		Description: p.Description.Elsewhere(), Active: m.plan.Active, Addresses: m.plan.Held,
		Epoch: m.plan.Epoch, By: m.plan.ID, Endpoint: p.Endpoint, Table: p.Table,
		Dir:     m.a.guestDir(m.plan.Guest, fmt.Sprint(m.plan.Epoch)),
		Unheard: &care.Unheard{Migration: m.plan.ID, From: m.plan.From}, ToDrop: comingWith(p), Boot: p.Boot,
	}
}

// startQEMU starts it waiting for the guest's memory.
func (m *incoming) startQEMU(ctx context.Context) (*qemu.Process, error) {
	g, facts := m.work.guest, m.work.preparation.Facts
	if len(g.Held().Description.Start) > 0 {
		return described.Start(ctx, g.Held(), g.Taps())
	}
	spec, err := m.a.spec(g, true)
	if err != nil {
		return nil, err
	}
	return qemu.Start(ctx, alike(spec, facts))
}

// alike is spec with what must be as at the source.
func alike(spec qemu.Spec, source vm.Facts) qemu.Spec {
	spec.Machine, spec.CPU, spec.Accel, spec.Announces = source.Machine, qemu.CPU(source), source.Accel, !source.Quiet
	return spec
}

func (m *incoming) incomingSocket() string { return filepath.Join(m.work.guest.Held().Dir, "in.sock") }

func (m *incoming) options() vm.MigrateOptions {
	opts := migrateOptions(m.plan, m.work.preparation.Channels)
	opts.URI = "unix:" + m.incomingSocket()
	opts.HoldSwitchover = takesAck(m.work.preparation.Facts) // a QEMU that waits does nothing else for a hold
	opts.Postcopy = mayHandEarly(m.plan)
	return opts
}

// watchArrival tells the machine when the last byte of memory has come, or why it will not, and dials the
// guest's channel, where it has one, so that its first tick is heard. Both end with stopLoading.
func (m *incoming) watchArrival() {
	ctx, cancel := context.WithCancel(m.a.ctx)
	m.work.stopLoading = cancel
	machine := m.work.guest.Machine()
	go m.tellLoaded(ctx, machine)
	if m.work.guest.Held().Description.Silent() {
		return
	}
	m.work.dialled = make(chan dialled, 1)
	go func() {
		c, err := line.Open(ctx, m.work.preparation.Description, machine.GuestChannel())
		m.work.dialled <- dialled{c, err}
	}()
}

// tellLoaded waits for the end of memory's stream, and tells the machine how it ended.
func (m *incoming) tellLoaded(ctx context.Context, machine vm.Machine) {
	in := migration.Input{Kind: migration.LoadedAll}
	if p, err := m.awaitLoaded(ctx, machine); err != nil {
		if ctx.Err() != nil {
			return
		}
		fault := m.laneFault()
		why := &migration.Problem{Code: codeOf(fault), Text: fmt.Sprintf(
			"guest %s did not arrive whole on %s: %s", m.plan.Guest, m.plan.To, notWhole(err, fault, m.plan.From, p, qemu.Complaint(m.dir)))}
		m.broke.Store(why) // its source may ask at once, for the same reason
		in = migration.Input{Kind: migration.Fault, Problem: cmp.Or(m.turnedBack(ctx), why)}
	}
	if in.Kind == migration.LoadedAll {
		m.rec.Moment(record.StepLoaded) // what is done from now on makes the guest wait
	}
	if !mayHandEarly(m.plan) {
		m.rec.Edit(func(r *record.Report) { r.MemoryDone = m.rec.Now() })
	}
	m.tell(ctx, in) //nolint:errcheck // it ends with ctx
}

// notWhole says once why QEMU did not load a guest: err and p are what it answered, which has no reason in it, said is
// what it wrote to its log. Where lanes ended its stream they know why, and QEMU only what it missed; what ended at the
// source is told as its own: that reads it, too.
func notWhole(err, lanes error, source string, p vm.Progress, said string) string {
	if there := (*paths.PeerError)(nil); errors.As(lanes, &there) {
		return "what sends it on " + source + " has ended: " + there.Text
	}
	if lanes != nil {
		return lanes.Error()
	}
	text := err.Error()
	for _, more := range []string{p.Error, said} {
		if more != "" && !strings.Contains(text, more) {
			text += ": " + more
		}
	}
	return text
}

// serveStream hands one stream of memory to the waiting QEMU.
func (m *incoming) serveStream(s *peer.Stream) {
	g := m.visible()
	if s.Header.Kind == lanes.Disk {
		m.serveDisk(s)
		return
	}
	if s.Header.Kind == lanes.Memory {
		m.serveLane(s)
		return
	}
	if s.Header.Kind != "memory" || g == nil {
		return
	}
	// QEMU tells its streams apart by the order in which they come.
	if !m.work.turn.await(m.a.ctx, s.Header.Number) {
		return
	}
	passed := func() { m.work.turn.pass(s.Header.Number) }
	if s.Header.Number == 0 {
		courtesy(m.a.ctx, g.Machine())
	}
	if err := transfer.ServeStream(m.a.ctx, heardStream{s, m.noteHeard}, m.incomingSocket(), passed); err != nil {
		m.a.log.Info("stream ended", "migration", m.plan.ID, "number", s.Header.Number, "error", err)
	}
}
