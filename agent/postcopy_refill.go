package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"godwit/agent/datapath"
	"godwit/agent/lanes"
	"godwit/agent/limits"
	"godwit/agent/peer"
	"godwit/agent/record"
	"godwit/agent/talk"
	"godwit/migration"
	"godwit/transfer/proxy"
	"godwit/vm"
	"godwit/vm/qemu"
)

// A guest that runs before its pages are there outlives both agents: QEMU's connection at
// the destination is kept by a process of its own (package inlet), and the source's stopped
// QEMU still has every page. Whatever ends the proxies, the source's agent, which may be
// another by then, refills: it asks the destination to go on with its inlet, and lets its
// QEMU migrate once more. Only what is missing travels.

// inletSocket is that of the guest in dir.
func inletSocket(dir string) string { return filepath.Join(dir, "inlet.sock") }

// peerRefill makes ready for the rest of a guest that runs here.
func (a *Agent) peerRefill(r *http.Request) (any, error) {
	var ask talk.Refill
	if err := peer.Decode(r, &ask); err != nil {
		return nil, err
	}
	m, err := a.findIncoming(r)
	if err != nil {
		rec, err := a.endedFrom(r, ask.Epoch)
		if err != nil {
			return nil, err
		}
		if rep := rec.Snapshot(); rep.Outcome != migration.Completed {
			return nil, &migration.Problem{Code: migration.CodeUsage, Text: fmt.Sprintf("refill %s: it has ended on %s", rep.ID, a.config.Host)}
		}
		return talk.RefillAnswer{State: talk.RefillWhole}, nil
	}
	if !mayHandEarly(m.plan) || ask.Epoch != m.plan.Epoch {
		return nil, &migration.Problem{Code: migration.CodeUsage, Text: fmt.Sprintf(
			"refill %s: mode %s, epoch %d; here it is %d", m.plan.ID, m.plan.Mode, ask.Epoch, m.plan.Epoch)}
	}
	return m.refill(ask)
}

// refill replaces the lanes.
func (m *incoming) refill(ask talk.Refill) (talk.RefillAnswer, error) {
	m.refilling.Lock()
	defer m.refilling.Unlock()
	id, err := lanes.Identity(m.plan.ID, ask.Key)
	if err != nil {
		return talk.RefillAnswer{}, err
	}
	again, err := m.asksAgain(ask.Key)
	if err != nil {
		return talk.RefillAnswer{}, err
	}
	var waits proxy.Waits
	if lanes := m.lanes(); lanes != nil {
		select {
		case <-lanes.Done():
			if lanes.Err() == nil { // all came before the guest ran
				return talk.RefillAnswer{State: talk.RefillWhole}, nil
			}
		default:
			if again {
				return talk.RefillAnswer{State: talk.RefillOpen, Missing: lanes.Absent()}, nil
			}
		}
		select {
		case <-lanes.HandedOver():
		default:
			return talk.RefillAnswer{State: talk.RefillEarly}, nil
		}
		if lanes.Close(); lanes.Err() == nil {
			return talk.RefillAnswer{State: talk.RefillWhole}, nil
		}
		m.notePostCopy()
		waits = lanes.Waits()
	}
	lanes, err := proxy.NewDestination(m.a.ctx, proxy.DestinationConfig{
		Identity: id, Mirror: m.a.config.State, Inlet: inletSocket(m.dir), Resume: true, Waits: waits, Late: m.late.Hears(),
		Most: datapath.MostStream(m.work.preparation.Facts.Memory),
	})
	if err != nil {
		return m.noInlet(err)
	}
	m.mu.Lock()
	m.work.lanes = lanes
	m.mu.Unlock()
	go m.watchPostCopy(lanes)
	missing := lanes.Absent()
	if !again {
		m.refills = append(m.refills[max(0, len(m.refills)-refillsKept):], ask.Key)
		m.rec.Edit(countRefill)
	}
	m.rec.Note(fmt.Sprintf("post-copy goes on with new lanes: %d pages are missing", missing))
	return talk.RefillAnswer{State: talk.RefillOpen, Missing: missing}, nil
}

// countRefill is for both ends: an agent of the destination that was killed forgets those before.
func countRefill(r *record.Report) {
	if r.PostCopy == nil {
		r.PostCopy = &record.PostCopy{}
	}
	r.PostCopy.Refills++
}

// noInlet asks QEMU why there is no inlet.
func (m *incoming) noInlet(err error) (talk.RefillAnswer, error) {
	g := m.visible()
	if g == nil || !g.Alive() {
		return talk.RefillAnswer{}, err
	}
	ctx, cancel := limits.Status.On(m.a.ctx)
	defer cancel()
	p, perr := g.Machine().Progress(ctx)
	switch {
	case perr != nil:
		return talk.RefillAnswer{}, errors.Join(err, limits.Says(ctx, perr))
	case p.Status == vm.Completed:
		return talk.RefillAnswer{State: talk.RefillWhole}, nil
	case !m.snapshot().Running():
		return talk.RefillAnswer{State: talk.RefillEarly}, nil
	}
	return talk.RefillAnswer{}, m.starved(string(p.Status))
}

// refillPause is between two tries to reach the destination.
const refillPause = 500 * time.Millisecond

// keepServing brings the rest of memory to a guest that runs at the destination, until its
// last page is there or ctx ends.
func (m *outgoing) keepServing(ctx context.Context) {
	if !mayHandEarly(m.plan) {
		return
	}
	said := false
	for ctx.Err() == nil {
		if lanes := m.work.lanes; lanes != nil {
			begun := time.Now()
			if m.followLastPages(ctx, lanes) == nil || ctx.Err() != nil {
				return
			}
			m.rec.Note(fmt.Sprintf("post-copy: the lanes have ended: %v; the rest is sent by another migration of the stopped guest", lanes.Err()))
			sleep(ctx, refillPause-time.Since(begun)) // those that end as they begin, as on a disk there that is full, are not replaced in a hot loop
		}
		whole, err := m.refill(ctx)
		if whole {
			m.rec.Edit(func(r *record.Report) { r.MemoryDone = cmp.Or(r.MemoryDone, m.rec.Now()) })
			return
		}
		if errors.Is(err, errLost) {
			m.lose(ctx, err)
			return
		}
		if err != nil && ctx.Err() == nil {
			if !said {
				m.rec.Note("post-copy waits: " + err.Error())
			}
			said = true
			sleep(ctx, refillPause)
			continue
		}
		said = false
	}
}

// followLastPages tells watchers how far post-copy is, until lanes have brought the last
// page, or have ended.
func (m *outgoing) followLastPages(ctx context.Context, lanes *proxy.Source) error {
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		select {
		case <-lanes.Done():
			m.noteDataPath()
			if lanes.Err() == nil {
				m.rec.Edit(func(r *record.Report) { r.MemoryDone = m.rec.Now() })
				m.work.missing = 0
				m.tellLastPages(lanes) // nothing is left
			}
			return lanes.Err()
		case <-tick.C:
			m.tellLastPages(lanes)
			m.keepWire()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tellLastPages tells them where pages follow: a copy by mode hybrid may have come to its end before.
func (m *outgoing) tellLastPages(lanes *proxy.Source) {
	if follow, _ := m.rec.PagesFollow(); follow {
		m.progress(m.lastPages(lanes))
	}
}

// lastPages is what watchers see of post-copy.
func (m *outgoing) lastPages(lanes *proxy.Source) record.CopyProgress {
	s := lanes.Stats()
	left := m.work.missing - min(m.work.missing, s.Delivered) // of a refill, also what is not read again yet
	out := record.CopyProgress{
		What: record.CopyOfRest, Total: m.guest.Held().Description.Memory, Remaining: int64(max(left, s.Waiting+s.InFlight)) << 12, //nolint:gosec // less than memory
		Sent: s.Stats.Acked, Rate: s.Goodput, Round: int64(s.Round), Wire: m.wireSince(), DataPath: m.dataPath(),
	}
	if s.Goodput > 0 {
		out.LeftS = float64(s.Queue) / float64(s.Goodput)
	}
	return out
}

// refill begins another migration of the stopped guest. It says whether nothing is missing
// any more.
func (m *outgoing) refill(ctx context.Context) (whole bool, err error) {
	m.work.leaveMemory()
	if forward := m.takeForward(); forward != nil {
		forward.Close()   //nolint:errcheck // it has ended
		m.work.unfollow() // what was kept of each page goes with them: there may be many tries
	}
	m.beginWire()
	ask := talk.Refill{Epoch: m.state.Epoch, Key: lanes.NewKey()}
	var answer talk.RefillAnswer
	if err := limits.Refill.Do(ctx, func(ctx context.Context) error { return m.call(ctx, "refill", ask, &answer) }); err != nil {
		return false, err
	}
	switch answer.State {
	case talk.RefillWhole:
		return true, nil
	case talk.RefillOpen:
	default:
		return false, fmt.Errorf("the guest could not run on %s yet", m.plan.To)
	}
	m.rec.Edit(countRefill)
	m.work.missing = answer.Missing
	if m.qemuGone() && answer.Missing > 0 {
		return false, m.pagesLost(answer.Missing)
	}
	if !m.guest.Alive() {
		return false, fmt.Errorf("the guest's QEMU on %s does not answer", m.plan.From)
	}
	if err := m.guest.Machine().CancelMigration(ctx); err != nil && !errors.Is(err, qemu.ErrCompleted) {
		return false, err
	}
	return false, m.openRefill(ctx, ask.Key)
}

// openRefill opens lanes over every path, and lets QEMU send.
func (m *outgoing) openRefill(ctx context.Context, key []byte) error {
	id, err := lanes.Identity(m.plan.ID, key)
	if err != nil {
		return err
	}
	n, _ := m.a.config.Peer(m.plan.To)
	all := m.paths(n)
	buffer := m.a.buffers.Refill(m.guest.Held().Description.Memory)
	c := proxy.SourceConfig{
		Socket: m.outSocket(), Identity: id, Spill: m.a.config.State, Refill: true,
		Buffer: buffer.Bytes(), Limit: m.bandwidth.Share(),
	}
	var share *lanes.Share
	c.Lanes, share = m.pathLanes(all)
	lanes, err := proxy.ListenSource(m.a.ctx, c)
	if err != nil {
		buffer.End()
		return err
	}
	buffer.Fills(lanes)
	m.followLanes(lanes, share)
	if err := m.guest.Machine().Migrate(ctx, vm.MigrateOptions{URI: "unix:" + c.Socket}); err != nil {
		m.work.unfollow()
		return errors.Join(err, lanes.Close())
	}
	m.work.forward, m.work.lanes = lanes, lanes
	m.noteDataPath() // of these from here on
	m.rec.Carried.Refills()
	m.a.rightOfWay.Join(m.plan.ID, all, m.giveWay)
	m.wayUntilPages(lanes)
	return nil
}

// following is what brings the rest of memory: a proxy.Destination.
type following interface {
	HandedOver() <-chan struct{}
	Done() <-chan struct{}
	Err() error
}

// watchPostCopy notes the figures for who looks while pages are missing, and when the last was there.
func (m *incoming) watchPostCopy(lanes following) {
	select {
	case <-lanes.HandedOver():
	case <-lanes.Done():
		select {
		case <-lanes.HandedOver():
		default:
			return
		}
	}
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		m.notePostCopy()
		select {
		case <-tick.C:
		case <-lanes.Done():
			if lanes.Err() == nil {
				m.lastPageIsHere()
			}
			return
		}
	}
}

// lastPageIsHere keeps when that was: the first who knows says so. After a restart nobody waits for QEMU's word, and
// there may be no lanes that brought it.
func (m *incoming) lastPageIsHere() {
	m.rec.Edit(func(r *record.Report) {
		if r.MemoryDone == 0 {
			r.MemoryDone = m.rec.Now()
		}
		if r.PostCopy != nil {
			r.PostCopy.Lasted(r)
		}
	})
}

// notePostCopy keeps the destination's figures.
func (m *incoming) notePostCopy() {
	lanes := m.lanes()
	if lanes == nil {
		return
	}
	select {
	case <-lanes.HandedOver():
	default:
		return
	}
	left, total, s := lanes.Absent(), lanes.Total(), lanes.Stalls()
	m.rec.Edit(func(r *record.Report) {
		if r.PostCopy == nil {
			r.PostCopy = &record.PostCopy{}
		}
		c := r.PostCopy
		c.Pages = max(c.Pages, left)
		if total > 0 {
			c.Share = float64(c.Pages) / float64(total)
		}
		if m.stalls.lanes != lanes {
			m.stalls.before, m.stalls.lanes = m.stalls.now, lanes
		}
		sum := m.stalls.before
		sum.Pages, sum.Sum, sum.Longest = sum.Pages+s.Pages, sum.Sum+s.Sum, max(sum.Longest, s.Longest)
		m.stalls.now = sum
		c.Waited(sum.Pages, sum.Sum, sum.Longest)
		if left == 0 {
			c.Lasted(r)
		}
	})
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// stallCount adds up what the guest waited for over several sessions of lanes.
type stallCount struct {
	lanes       *proxy.Destination
	before, now proxy.Stalls
}
