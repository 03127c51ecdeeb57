package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"godwit/agent/datapath"
	"godwit/agent/lanes"
	"godwit/agent/peer"
	"godwit/agent/record"
	"godwit/agent/ways"
	"godwit/policy"
	"godwit/transfer/inlet"
	"godwit/transfer/paths"
	"godwit/transfer/proxy"
	"godwit/vm"
)

// The transfer `lanes` is our own data path (docs/datapath.md): a proxy beside each QEMU,
// and one TLS stream per pair of uplinks between.

// outSocket is where QEMU sends memory that does not leave by connections of its own.
func (m *outgoing) outSocket() string { return filepath.Join(m.guest.Held().Dir, "out.sock") }

// openLanes begins our own data path at the source, where memory takes that: QEMU finds it
// when the copy begins, and lanes that stand. A path that answers nobody now is tried on, and
// waited for by nobody. endLanes undoes it.
func (m *outgoing) openLanes() error {
	if !m.plan.OwnPath() {
		return nil
	}
	all, err := m.requirePaths()
	if err != nil {
		return err
	}
	id, err := lanes.Identity(m.plan.ID, m.work.laneKey)
	if err != nil {
		return err
	}
	c := proxy.SourceConfig{
		Socket: m.outSocket(), Identity: id, Spill: m.a.config.State, Budget: m.plan.Downtime,
		Limit: m.bandwidth.Share(), Postcopy: mayHandEarly(m.plan), Eager: m.plan.Mode == "postcopy", Stopped: m.plan.Mode == "stopcopy",
	}
	var share *lanes.Share
	if m.plan.Multipath() {
		lane, err := m.multipathLane(all)
		if err == nil {
			m.work.endpoints, err = m.a.endpoints.JoinFrom(locals(all))
		}
		if err != nil {
			return err
		}
		c.Lanes = append(m.spareLanes(all), lane)
	} else {
		c.Lanes, share = m.pathLanes(all)
	}
	m.beginWire()
	m.work.visit = m.beginVisit()
	c.Keep = m.work.visit
	buffer := m.a.buffers.New(m.plan, m.work.facts.Memory)
	c.Buffer = buffer.Bytes()
	lanes, err := proxy.ListenSource(m.a.ctx, c)
	if err != nil {
		buffer.End()
		m.endVisit(false)
		return err
	}
	buffer.Fills(lanes)
	m.work.buffer = buffer
	m.followLanes(lanes, share)
	m.work.forward, m.work.lanes = lanes, lanes
	return nil
}

// pathLanes are a lane for memory over each of these paths.
func (m *outgoing) pathLanes(all []peer.Path) ([]paths.Lane, *lanes.Share) {
	return lanes.Over(m.link, all, len(all), func(number int) peer.Header {
		return peer.Header{Migration: m.plan.ID, Kind: lanes.Memory, Number: number}
	})
}

// followLanes counts what lanes carry, until unfollow, and has them share their uplinks; nil: they are one.
func (m *outgoing) followLanes(lanes *proxy.Source, share *lanes.Share) {
	if share != nil {
		go share.Keep(lanes.Done(), func() []paths.Path { return lanes.Stats().Paths })
	}
	m.work.unfollow = m.work.wire.Follow(func() int64 { return lanes.Stats().Acked })
}

// endLanes ends what openLanes began, lanes that are being opened too. It does not wait for their
// farewell, most of a second where nobody answers: askAbort does, which asks meanwhile.
func (m *outgoing) endLanes() {
	forward, visit := m.takeForward(), m.work.visit
	m.work.visit = nil
	if forward == nil && visit == nil {
		return
	}
	m.work.farewells.Go(func() {
		if forward != nil {
			forward.Close() //nolint:errcheck // it is being undone
		}
		if visit != nil { // after whoever writes it
			visit.Close() //nolint:errcheck // it is given up
		}
	})
}

// laneLook is a look at memory that takes our own data path.
func (m *outgoing) laneLook(p vm.Progress, at time.Duration) policy.Look {
	look := datapath.Look(m.laneStats(), p, at, &m.work.handling)
	look.Release = m.link.Trip() / 2
	return look
}

// pauseRTT is the round trip that counts for a pause: of memory's paths, as they were probed, and once our own data
// path carries it that of its fastest lane, which the last bytes take; without what waits in queues now.
func (m *outgoing) pauseRTT() time.Duration {
	probed := cmp.Or(ways.Last(m.plan, m.work.trips), m.work.rtt)
	if m.work.lanes == nil {
		return probed
	}
	return cmp.Or(m.work.lanes.Stats().LeastRTT, probed)
}

// For a switchover to begin a byte must have moved as lately as lanesFresh, and each lane been heard as lately as laneFresh:
// both ends say something each 250 ms, and a path that was cut counts until its lane is dead.
const (
	lanesFresh = time.Second
	laneFresh  = 700 * time.Millisecond
)

// lanesReady says whether a switchover may rely on the lanes now.
func (m *outgoing) lanesReady() bool {
	if m.work.lanes == nil {
		return true
	}
	s := m.work.lanes.Stats()
	return s.LanesLive > 0 && time.Since(s.Heard) < lanesFresh && s.Silent < laneFresh
}

// laneStats looks at the lanes, and keeps how long their queue ever was.
func (m *outgoing) laneStats() proxy.Stats {
	s := m.work.lanes.Stats()
	m.work.largestQueue = max(m.work.largestQueue, s.Queue)
	return s
}

func (m *outgoing) dataPath() *record.DataPath {
	if m.work.lanes == nil {
		return nil
	}
	s := m.laneStats() // which may be the largest
	return datapath.Figures(s, m.work.largestQueue)
}

// noteDataPath keeps the last figures.
func (m *outgoing) noteDataPath() {
	if d := m.dataPath(); d != nil {
		m.rec.Edit(func(r *record.Report) { r.DataPath = d })
		m.noteOpaque(d)
	}
}

// noteOpaque says once that QEMU's stream is passed on as it is: it explains a slow migration.
func (m *outgoing) noteOpaque(d *record.DataPath) {
	if d.Opaque != "" {
		m.work.mayFollow = false // nobody knows its pages
		m.rec.NoteOnce("QEMU's stream cannot be taken apart from here on, as it has " + d.Opaque + ": it is passed on as it is, neither coded nor on several paths at once, which takes longer")
	}
}

// awaitLanes is the destination's part: a proxy that waits for lanes.
func (m *incoming) awaitLanes() error {
	if !m.plan.OwnPath() {
		return nil
	}
	id, err := lanes.Identity(m.plan.ID, m.work.preparation.LaneKey)
	if err != nil {
		return err
	}
	c := proxy.DestinationConfig{Identity: id, Socket: m.incomingSocket(), Mirror: m.a.config.State, Elsewhere: m.elsewhere(), Late: m.late.Hears(),
		Most: datapath.MostStream(m.work.preparation.Facts.Memory), Beside: m.a.besideFrom(m.plan.From)}
	if mayHandEarly(m.plan) {
		dir := m.work.guest.Held().Dir
		c.Inlet = inletSocket(dir)
		if err := inlet.Start(m.a.ctx, c.Inlet, filepath.Join(dir, "inlet.log")); err != nil {
			return err
		}
	}
	lanes, err := proxy.NewDestination(m.a.ctx, c)
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.work.lanes = lanes
	m.mu.Unlock()
	if c.Inlet != "" {
		go m.watchPostCopy(lanes)
	}
	return m.prepareMultipath()
}

// serveLane serves one lane. A migration that has none any more, as its agent was started
// again, says so: the source need not try until its patience ends.
func (m *incoming) serveLane(s *peer.Stream) {
	all := m.lanes()
	if all == nil {
		lanes.Refuse(s, fmt.Sprintf("the agent of %s was started again in the middle of the copy", m.a.config.Host))
		return
	}
	if g := m.visible(); s.Header.Number == 0 && !m.snapshot().Released && g != nil {
		courtesy(m.a.ctx, g.Machine())
	}
	err := all.Serve(m.a.ctx, heardStream{s, m.noteHeard})
	if err != nil && !errors.Is(err, context.Canceled) {
		m.a.log.Info("lane ended", "migration", m.plan.ID, "number", s.Header.Number, "error", err)
	}
}

// laneFaultLimit is how long after QEMU has ended its side the lanes are given to say why.
const laneFaultLimit = 200 * time.Millisecond

// laneFault is why our own data path has ended here, such as that the disk is full; nil where that is QEMU's doing.
func (m *incoming) laneFault() error {
	lanes := m.lanes()
	if lanes == nil {
		return nil
	}
	select {
	case <-lanes.Done():
	case <-time.After(laneFaultLimit):
		return nil
	}
	var end *proxy.QEMUError
	if err := lanes.Err(); !errors.As(err, &end) {
		return err
	}
	return nil
}
