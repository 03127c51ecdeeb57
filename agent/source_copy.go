package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"godwit/agent/datapath"
	"godwit/agent/lanes"
	"godwit/agent/peer"
	"godwit/agent/record"
	"godwit/agent/talk"
	"godwit/agent/uplinks"
	"godwit/migration"
	"godwit/policy"
	"godwit/transfer"
	"godwit/transfer/proxy"
	"godwit/vm"
	"godwit/vm/qemu/qmp"
)

const (
	lookEvery     = 10 * time.Millisecond  // at QEMU's figures
	progressEvery = 200 * time.Millisecond // for watchers
	multifdLeast  = 2                      // channels
)

// copyFlushed copies memory, and keeps disks flushed meanwhile.
func (m *outgoing) copyFlushed(ctx context.Context) error { return m.keepFlushed(ctx, m.copyMemory) }

// keepFlushed keeps disks flushed while do copies.
func (m *outgoing) keepFlushed(ctx context.Context, do func(context.Context) error) error {
	flushing, cancel := context.WithCancel(ctx)
	flushed := make(chan struct{})
	go func() { defer close(flushed); m.work.mirrors.KeepFlushed(flushing) }()
	defer func() { cancel(); <-flushed }()
	return do(ctx)
}

// copyMemory sends memory, round after round, until what is left fits the budget.
// The guest runs on; QEMU is held off the switchover.
func (m *outgoing) copyMemory(ctx context.Context) error {
	paths, err := m.requirePaths()
	if err != nil {
		return err
	}
	m.a.rightOfWay.Join(m.plan.ID, paths, m.giveWay)
	ticking := make(chan error, 1)
	go func() { ticking <- m.followTicks(ctx) }() // the guest may take its time
	err = m.beginCopy(ctx, paths)
	m.noteTicks(ctx, <-ticking)
	if err != nil || m.plan.Mode == "stopcopy" {
		return err
	}
	courtesy(ctx, m.guest.Machine())
	return m.awaitFit(ctx, paths)
}

// noteTicks tells why the guest's own counter cannot be followed; not where nobody wants it any more.
func (m *outgoing) noteTicks(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		m.rec.Note("the guest's own counter cannot be followed: " + err.Error())
	}
}

// beginCopy has QEMU send memory.
func (m *outgoing) beginCopy(ctx context.Context, paths []peer.Path) error {
	m.beginWire()
	opts := migrateOptions(m.plan, channelsOver(m.plan, len(paths)))
	opts.URI, opts.MaxBandwidth = "unix:"+m.outSocket(), m.beginQEMUPart()
	m.work.throttling = policy.Throttling{Most: m.a.config.MostThrottle(m.plan)}
	opts.Throttles = m.work.throttling.Most > 0
	opts.LooksAtOnce = !m.plan.OwnPath() && m.plan.Mode != "stopcopy" // what our own data path has read it sends once
	switch {
	case m.plan.Direct():
		opts.URI, opts.Looks = m.work.prepared.Memory, m.widenOwn
		opts.KeepsLimit = true // it is QEMU's alone
		m.followQEMU()
	case m.plan.OwnPath():
		opts.MaxBandwidth = 0
	default:
		forward, err := transfer.ListenSource(m.a.ctx, m.outSocket(), m.bandwidth.Share(), func(ctx context.Context, number int) (net.Conn, error) {
			// The main stream goes over the best path; pages over all in turn.
			path := paths[number%len(paths)]
			header := peer.Header{Migration: m.plan.ID, Kind: "memory", Number: number}
			if number == 0 && opts.Multifd {
				header.Coding = peer.CodingZstd // device state, on a connection that was idle
			}
			return m.link.Open(ctx, path, header, lanes.Pace(path, opts.Channels, len(paths)))
		})
		if err != nil {
			return err
		}
		m.work.forward = forward
		m.work.wire.Follow(func() int64 { return forward.Stats().Forward })
	}
	return m.notBegun(ctx, m.guest.Machine().Migrate(ctx, opts))
}

// notBegun explains why QEMU could not begin to send memory: where what carries its stream has ended, by why that has.
func (m *outgoing) notBegun(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil || m.work.forward == nil || m.work.forward.Err() == nil {
		return err
	}
	if ours := (*migration.Problem)(nil); errors.Is(err, qmp.ErrClosed) || errors.As(m.work.forward.Err(), &ours) {
		return fmt.Errorf("%w; %w", err, m.work.forward.Err())
	}
	return m.copyEnded(ctx, vm.Progress{Error: err.Error()})
}

// requirePaths are those that memory and disks take, at least one.
func (m *outgoing) requirePaths() ([]peer.Path, error) {
	n, _ := m.a.config.Peer(m.plan.To)
	all := m.paths(n)
	if len(all) == 0 {
		return nil, m.problem(migration.CodePath, "no uplink of %s that carries migrations reaches one of %s: both need one, by IPv4 or both by IPv6", m.plan.From, m.plan.To)
	}
	return all, nil
}

// takesAck says whether a source may be sent SWITCHOVER_ACK. One that is held by low bandwidth
// does not know it, and its migration fails by it.
func takesAck(source vm.Facts) bool { return source.Hold != vm.HoldLowBandwidth }

// channelsOver is how many connections QEMU sends pages over, beside its main one, where there are so many paths; 0:
// that one alone. Its destination waits for as many.
func channelsOver(p migration.Plan, paths int) int {
	if p.Transfer != "qemu-multifd" {
		return 0
	}
	return min(max(multifdLeast, paths), talk.MostChannels)
}

// migrateOptions are the same at both ends but for the URI, and for what a destination does.
func migrateOptions(p migration.Plan, channels int) vm.MigrateOptions {
	opts := vm.MigrateOptions{HoldSwitchover: true}
	switch p.Transfer {
	case "qemu-multifd":
		opts.Multifd, opts.Compression, opts.CompressionLevel = true, "zstd", 1
		opts.Channels = max(multifdLeast, channels)
	case "qemu-xbzrle":
		opts.Xbzrle = true
	}
	return opts
}

// courtesy makes the threads of a copy yield to guests, when they have all begun.
func courtesy(ctx context.Context, machine vm.Machine) {
	go func() {
		for range 5 {
			machine.Courtesy(true) //nolint:errcheck // slower, not wrong
			if !sleep(ctx, 100*time.Millisecond) {
				return
			}
		}
	}()
}

// awaitFit looks at QEMU's figures until policy says go.
func (m *outgoing) awaitFit(ctx context.Context, paths []peer.Path) error {
	copying := policy.Copying{Budget: m.plan.Downtime}
	begun, told := time.Now(), time.Time{}
	clock := policy.Clock{}
	m.copyTime(&clock, begun, false)
	idle := policy.Standstill{Patience: m.a.config.Patience}
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
		p, look, err := m.lookAtCopy(ctx, &idle, paths, begun)
		if err != nil {
			return err
		}
		if err := m.limitQEMU(ctx); err != nil {
			return err
		}
		now, gives, ready := time.Now(), m.bandwidth.GivesWay(), m.steady()
		at := m.copyTime(&clock, now, ready && !gives && !idle.Stands(now))
		if !ready {
			continue
		}
		if m.plan.Mode == "stopcopy" { // whatever is left
			return nil
		}
		look.At, look.Pause = at, policy.Pause(p.Throttled, vm.ThrottleRuns)
		m.seeRound(&look, p.Rounds)
		copying.Limit = m.copyLimit(paths) // the bandwidth may have been lowered, or lifted
		if time.Since(told) > progressEvery {
			told = time.Now()
			m.tellCopy(p, look)
			m.keepWire()
		}
		copying.RTT = m.pauseRTT() // lanes come and go
		verdict := copying.See(look)
		if gives && verdict != policy.Go { // what the paths carry is another's just now
			continue
		}
		switch m.handEarly(look, verdict, &copying) {
		case policy.Wait:
			if err := m.throttle(ctx, &copying, look, p); err != nil {
				return err
			}
			m.seeBarely(look, &copying)
		case policy.Go:
			m.work.barely = false
			m.tellCopy(p, look)
			return nil
		case policy.GiveUp:
			m.tellCopy(p, look)
			return m.cannotFit(look, &copying)
		}
	}
}

// seeRound sees which round it is. Where nobody knows the guest's pages but QEMU, that tells whether it knows how much
// the guest writes.
func (m *outgoing) seeRound(look *policy.Look, round int64) {
	m.work.rounds.See(look.At, round)
	if (m.work.lanes == nil || m.opaque()) && !m.work.rounds.Counts() {
		look.DirtyRate = 0
	}
}

// lookAtCopy is how a copy that began then goes. The error is of one that is over, or in which nothing moves any more.
func (m *outgoing) lookAtCopy(ctx context.Context, idle *policy.Standstill, paths []peer.Path, begun time.Time) (p vm.Progress, look policy.Look, err error) {
	if p, err = m.guest.Machine().Progress(ctx); err == nil {
		err = m.stoodBefore(ctx, p.Status)
	}
	if err != nil {
		return p, look, err
	}
	if p.Status.Ended() {
		return p, look, m.copyEnded(ctx, p)
	}
	look = m.copyLook(p, time.Since(begun))
	if idle.See(time.Now(), m.moved(p)) {
		if m.plan.Direct() { // also what will have left before the pause, and so counts for nothing there
			look.Left = p.Remaining + m.work.ownQueue.waits
		}
		return p, look, m.problem(migration.CodePath,
			"not a byte of its memory moved to %s in %v, %s%s; see whether its agent runs and the uplinks carry packets, then try again",
			m.plan.To, idle.Patience, datapath.Left(look), datapath.WhyNoLane(m.dataPath()))
	}
	left, err := m.work.mirrors.Left(ctx)
	if err != nil {
		return p, look, m.disksEnded(ctx, m.work.mirrors, err)
	}
	look.Disks = policy.InSync(left, m.diskRate(paths, look.Goodput), m.pauseRTT())
	return p, look, nil
}

// copyLook is what policy sees of a copy of memory that has gone on for so long. A second wait, after
// hooks, knows what the first has seen.
func (m *outgoing) copyLook(p vm.Progress, at time.Duration) policy.Look {
	if m.work.lanes != nil {
		return m.laneLook(p, at)
	}
	p.Remaining = m.work.left.See(time.Now(), p.Rounds, p.Remaining, m.asksBeforeStop())
	if m.plan.Direct() {
		return m.directLook(p)
	}
	backlog, speed := m.forwards(p)
	return policy.Look{Turn: p.Rounds, Remaining: p.Remaining + m.ahead(backlog, speed), DirtyRate: p.DirtyRate, Goodput: speed}
}

// forwards is what QEMU has written and no path has taken yet, bytes, and what the paths carry, bytes per second. While
// the paths are another's, they say nothing.
func (m *outgoing) forwards(p vm.Progress) (backlog, speed int64) {
	f, ok := m.work.forward.(*transfer.Source)
	if !ok {
		return 0, m.work.memoryRate.See(time.Now(), p.Transferred, uplinks.NotKnown, m.pauseRTT())
	}
	s := f.Stats()
	if m.bandwidth.GivesWay() {
		s.Waited = uplinks.NotKnown
	}
	return s.Backlog, m.work.memoryRate.See(time.Now(), s.Carried, s.Waited, m.pauseRTT())
}

// moved grows with every byte that gets from QEMU to us, or from us to a path; where QEMU sends by itself, to its
// connections, or from these to the other end: it writes nothing while more waits there than they may keep now.
func (m *outgoing) moved(p vm.Progress) int64 {
	if m.plan.Direct() {
		return p.Transferred + (p.Transferred - m.work.ownQueue.waits)
	}
	switch f := m.work.forward.(type) {
	case *transfer.Source:
		return p.Transferred + f.Stats().Forward
	case *proxy.Source:
		return f.Stats().Heard.UnixNano() // grows with every byte that moves on a lane
	}
	return p.Transferred
}

// stillCopies is an error where QEMU, or what carries its stream, has ended the migration since the switch was decided,
// as the destination's disk is full: the guest runs on, and is not stopped for that. A QEMU that does not answer now
// does not stop it either.
func (m *outgoing) stillCopies(ctx context.Context) error {
	p, err := m.guest.Machine().Progress(ctx)
	switch {
	case err != nil:
		return err
	case p.Status.Ended():
	case m.work.lanes != nil && m.work.lanes.Err() != nil: // QEMU hears of it when it next writes
		p.Error = "what carried its stream has ended"
	default:
		return m.runsStill(ctx)
	}
	return m.copyEnded(ctx, p)
}

// copyEnded explains a copy that QEMU ended before it was let.
func (m *outgoing) copyEnded(ctx context.Context, p vm.Progress) error {
	why := p.Error
	if why == "" {
		why = "status " + string(p.Status)
	}
	if lanes := m.work.lanes; lanes != nil {
		select {
		case <-lanes.Done(): // it knows why, when it has told the other end
		case <-time.After(2 * time.Second):
		}
	}
	code := migration.CodeHypervisor
	if m.work.forward != nil && m.work.forward.Err() != nil {
		ended := m.work.forward.Err()
		why += "; " + ended.Error()
		if here, _ := diskFull(ended); here { // what the other end says follows from that
			return m.problem(migration.CodeCapacity, "a disk of %s is full: %s", m.plan.From, why)
		}
		code = codeOf(ended)
		if given := m.givenUpThere(ctx); given != nil {
			return m.problem(given.Code, "%s has given it up: %s; QEMU here: %s", m.plan.To, given.Text, why)
		}
	}
	return m.problem(code, "QEMU ended the copy: %s", why)
}

// givenUpThere is why the destination will not run the guest, where it says so: what ended here is what followed from that.
func (m *outgoing) givenUpThere(ctx context.Context) *migration.Problem {
	answer, err := m.askLanding(ctx)
	if err != nil {
		return nil //nolint:nilerr // then it does not say so
	}
	if record.SaneProblem(answer.Problem); answer.Problem != nil && answer.Problem.Code == migration.CodeGuestGone { // that is ours to say
		answer.Problem.Code = migration.CodePeer
	}
	return answer.Problem
}

// undoCopy ends QEMU's migration; the guest is as it was.
func (m *outgoing) undoCopy(ctx context.Context) error {
	m.countWire()
	m.work.leaveMemory()
	m.bandwidth.KeepApart(0)
	var err error
	if m.guest.Alive() {
		err = m.guest.Machine().CancelMigration(ctx) // the guest runs at its own speed again, if it was throttled
	}
	m.endLanes()
	if m.work.endTicks != nil {
		m.work.endTicks()
		m.work.endTicks, m.work.lastTick = nil, nil
	}
	return err
}

// takeForward takes out what stands between QEMU and the paths, and notes its figures; nil if
// nothing does.
func (m *outgoing) takeForward() forwarder {
	forward := m.work.forward
	if forward != nil {
		m.noteDataPath()
		if m.work.lanes != nil {
			m.notePlain(m.laneStats().Paths)
		}
		m.work.forward, m.work.lanes = nil, nil
	}
	return forward
}
