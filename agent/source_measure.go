package agent

import (
	"maps"
	"math"
	"time"

	"godwit/agent/record"
)

// goodput estimates what the paths carry, from a running total. Times without a
// byte do not count: QEMU held with nothing to send says nothing of the paths.
type goodput struct {
	at    time.Time
	bytes int64
	rate  float64
}

// goodputWindow is how long a sample takes.
const goodputWindow = 250 * time.Millisecond

func (g *goodput) see(now time.Time, total int64) int64 {
	if g.at.IsZero() {
		g.at, g.bytes = now, total
		return 0
	}
	if d := now.Sub(g.at); d >= goodputWindow {
		sample := float64(total-g.bytes) / d.Seconds()
		if sample > g.rate/2 || g.rate == 0 {
			g.rate += (sample - g.rate) * 0.5
		} else if sample > g.rate/20 { // a slower path counts, an idle one does not
			g.rate += (sample - g.rate) * 0.1
		}
		g.at, g.bytes = now, total
	}
	return int64(g.rate)
}

// wireCount is what meters have counted, IP bytes by path.
type wireCount struct {
	tunnels map[string]int64 // by the tunnels for memory, which no other migration has
	rest    map[string]int64 // by what migrations to the same host do not tell apart
}

// wireBytes reads the meters: what was sent to the destination so far. Of UDP only what
// the tunnels for memory carry counts: the rest are guests' packets.
func (m *outgoing) wireBytes() *wireCount {
	a := m.a
	n, _ := a.config.Find(m.plan.To)
	memory := map[uint16]bool{}
	for _, t := range m.work.memoryTunnels {
		memory[t.Remote.Port()] = true
	}
	paths, out := a.config.Paths(n), &wireCount{map[string]int64{}, map[string]int64{}}
	for _, u := range a.config.Uplinks {
		device := a.meters[u.Device]
		if device == nil {
			continue
		}
		counts, err := device.Read()
		if err != nil {
			a.log.Warn("read meter", "uplink", u.Name, "error", err)
			continue
		}
		for key, count := range counts {
			if !key.Out || key.Src != u.Address || key.Proto == protoUDP && !memory[key.Port] {
				continue
			}
			sum := out.rest
			if key.Proto == protoUDP {
				sum = out.tunnels
			}
			for _, p := range paths {
				if key.Src == p.Local && key.Dst == p.Remote {
					sum[p.Name] += int64(count.Bytes)
				}
			}
		}
	}
	return out
}

// protoUDP: tunnels travel in UDP.
const protoUDP = 17

// beginWire counts from now on, if it does not yet: what is sent first, lanes, disks or memory,
// begins it. What the report has by then was sent in earlier tries, or by an earlier agent.
func (m *outgoing) beginWire() {
	if m.work.wireStart != nil {
		return
	}
	m.work.wireBefore = m.rec.Snapshot().WireBytes
	m.work.wireStart, m.work.share = m.wireBytes(), m.a.shares.Join(m.plan.To)
	m.work.wireTold = wireTold{begun: time.Now()}
}

// wireSince is what the migration has sent, by path; of what others send there at the
// same time as much as they sent is theirs. QEMU's own connections have tunnels of their own, or are counted by nobody else.
func (m *outgoing) wireSince() map[string]int64 {
	if m.work.wireStart == nil { // an agent that was started again, and sent nothing yet
		return m.rec.Snapshot().WireBytes
	}
	start, now, part := m.work.wireStart, m.wireBytes(), 1.0
	if !m.plan.Insecure {
		part = m.work.share.Part()
	}
	return wireSum(wireSum(m.work.wireBefore, start.tunnels, now.tunnels, 1), start.rest, now.rest, part)
}

// wireSum is what was sent before, and a part of what meters have counted from start to now, by path.
func wireSum(before, start, now map[string]int64, part float64) map[string]int64 {
	out := map[string]int64{}
	maps.Copy(out, before)
	for path, bytes := range now {
		out[path] += int64(math.Round(float64(bytes-start[path]) * part))
		if out[path] == 0 {
			delete(out, path)
		}
	}
	return out
}

// countWire notes what the migration sent.
func (m *outgoing) countWire() {
	if m.work.wireStart == nil {
		return
	}
	wire := m.wireSince()
	m.rec.Edit(func(r *record.Report) { r.WireBytes = wire })
}

// wireTold is when what was sent was written down last, for an agent that is started again.
type wireTold struct{ begun, last time.Time }

// wireLost bounds what an agent that is killed takes with it of that count: what was sent in this time,
// or, of a long copy, in a share of it. The journal is to stay short.
const (
	wireLost      = time.Second
	wireLostShare = 20
	// wireRoom is what of the journal's room is left to the switch, bytes, whatever becomes of the disk meanwhile.
	wireRoom = 64 << 10
)

// due says whether it is to be written down again, at now.
func (w *wireTold) due(now time.Time) bool {
	if now.Sub(w.last) < max(wireLost, now.Sub(w.begun)/wireLostShare) {
		return false
	}
	w.last = now
	return true
}

// keepWire writes down from time to time, while a copy goes on, what it has sent, and at once that its limit
// was changed. It is called by what is being performed: nobody else writes to the journal meanwhile. Nothing hangs on it.
func (m *outgoing) keepWire() {
	if m.work.wireStart == nil || m.log == nil || !m.work.wireTold.due(time.Now()) && m.bandwidth.Bits() == m.limited || m.log.Reserve(wireRoom) != nil {
		return
	}
	if m.state.Released() { // the record has the whole report
		m.takeDown(m.state)
	} else {
		m.countWire()
		m.kept = m.sentSoFar()
	}
	if err := m.persist(m.state, false); err != nil {
		m.a.log.Warn("write down what was sent", "migration", m.plan.ID, "error", err)
	}
}
