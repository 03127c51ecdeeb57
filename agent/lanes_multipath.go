package agent

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync/atomic"

	"godwit/agent/lanes"
	"godwit/agent/peer"
	"godwit/migration"
	"godwit/transfer/paths"
)

// The transfer `mptcp` is our own data path over one MPTCP connection: a lane whose
// subflows take every pair of uplinks. The destination announces its addresses, and
// listens on all of them at a port of this migration's; the source joins from each of its
// own.

// prepareMultipath listens, and announces this host's uplinks.
func (m *incoming) prepareMultipath() error {
	if !m.plan.Multipath() {
		return nil
	}
	all := m.paths()
	if len(all) == 0 {
		return &migration.Problem{Code: migration.CodePath, Text: "no uplink on both hosts carries migrations"}
	}
	ctx, cancel := context.WithCancel(m.a.ctx)
	m.work.stopMultipath = cancel
	port, err := peer.ListenStreams(ctx, m.a.id, m.work.preparation.Window, m.a.stream, m.a.log)
	if err != nil {
		return err
	}
	m.work.prepared.Memory = strconv.Itoa(int(port))
	m.work.endpoints, err = m.a.endpoints.Announce(locals(all))
	return err
}

// locals are this host's ends of paths, each once: two may share an uplink here.
func locals(all []peer.Path) (out []netip.Addr) {
	for _, p := range all {
		if !slices.Contains(out, p.Local) {
			out = append(out, p.Local)
		}
	}
	return out
}

// spareLanes are a lane of each path beside that over all. MPTCP sends its bytes in order: what was lost on one path,
// or went by the longest, keeps the last of a pause waiting for some of its round trips, where another lane brings that
// in half a one.
func (m *outgoing) spareLanes(all []peer.Path) []paths.Lane {
	spare, _ := m.pathLanes(all) // they need not share: little goes on them
	for i := range spare {
		spare[i].Path, spare[i].Spare = multipathName, true
	}
	return spare
}

// multipathName is what figures call the lane over all paths, and those beside it.
const multipathName = "mptcp"

// notePlain says of lanes that are at their end that memory went by the spare ones alone, as the one over all paths
// never opened: figures call them the same. Before, it may only be cut off.
func (m *outgoing) notePlain(lanes []paths.Path) {
	for _, p := range lanes {
		if p.Stood || p.Acked == 0 || p.Refused == 0 {
			continue
		}
		m.rec.NoteOnce("transfer mptcp: its connection over all paths did not open (" + p.Last +
			"): memory went by a plain connection of each path; does a firewall drop MPTCP, or the destination's port?")
	}
}

// multipathLane is the one lane over all paths. Each time that it is opened, the next path
// has its first subflow: the one before may be cut.
func (m *outgoing) multipathLane(all []peer.Path) (paths.Lane, error) {
	port, err := strconv.ParseUint(m.work.prepared.Memory, 10, 16)
	if err != nil {
		return paths.Lane{}, &migration.Problem{Code: migration.CodePeer, Text: "prepare: the destination's port for memory is not one; bring both hosts to the same release"}
	}
	rate := lanes.PaceMultipath(all)
	lane := paths.Lane{Path: multipathName, Window: m.work.window, Rate: rate, Pace: rate}
	var next atomic.Int64
	lane.Open = func(ctx context.Context) (net.Conn, error) {
		p := all[int(next.Add(1)-1)%len(all)]
		return m.link.OpenMultipath(ctx, p, uint16(port), peer.Header{Migration: m.plan.ID, Kind: lanes.Memory}, m.work.window) //nolint:gosec // 16 bits
	}
	return lane, nil
}
