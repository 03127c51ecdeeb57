package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"godwit/agent/peer"
	"godwit/migration"
	"godwit/netstate/mptcp"
	"godwit/transfer/paths"
)

// The transfer `mptcp` is our own data path over one MPTCP connection: a lane whose
// subflows take every pair of uplinks. The destination announces its addresses, and
// listens on all of them at a port of this migration's; the source joins from each of its
// own.

// multipath says whether memory takes our own data path over MPTCP.
func multipath(p migration.Plan) bool { return p.Transfer == "mptcp" }

// joinBase is the first MPTCP endpoint id that a source uses for memory.
const joinBase = 220

// prepareMultipath listens, and announces this host's uplinks.
func (m *incoming) prepareMultipath() error {
	if !multipath(m.plan) {
		return nil
	}
	n, _ := m.a.config.find(m.plan.From, m.a.config.Host)
	all := reverse(transferPaths(m.plan, (&Config{Uplinks: n.Uplinks}).paths(Neighbour{Uplinks: m.a.config.Uplinks})))
	if len(all) == 0 {
		return &migration.Problem{Code: migration.CodePath, Text: "no uplink on both hosts carries migrations"}
	}
	ctx, cancel := context.WithCancel(m.a.ctx)
	m.work.stopMultipath = cancel
	port, err := peer.ListenStreams(ctx, m.a.id, m.a.stream, m.a.log)
	if err != nil {
		return err
	}
	m.work.prepared.Memory = strconv.Itoa(int(port))
	m.work.endpoints, err = addEndpoints(all, endpointBase, mptcp.FlagSignal)
	return err
}

// raiseMultipath lets the source's path manager join from each uplink.
func (m *outgoing) raiseMultipath(all []peer.Path) (err error) {
	if !multipath(m.plan) {
		return nil
	}
	m.work.endpoints, err = addEndpoints(all, joinBase, mptcp.FlagSubflow|mptcp.FlagFullmesh)
	return err
}

// addEndpoints makes the local ends of paths known to the kernel's path manager. On error
// it returns those that were made.
func addEndpoints(all []peer.Path, base uint8, flags mptcp.Flags) ([]endpointAt, error) {
	if err := mptcp.SetLimits(8, 8); err != nil {
		return nil, err
	}
	var out []endpointAt
	for _, p := range all {
		at, err := addEndpoint(p.Local, base, flags)
		if errors.Is(err, os.ErrExist) || errors.Is(err, unix.EBUSY) {
			continue // another migration's; or the kernel's own, of an address that a connection has
		}
		if err != nil {
			return out, fmt.Errorf("use %s for memory: %w", p.Local, err)
		}
		out = append(out, at)
	}
	return out, nil
}

// addEndpoint makes an address known under the first id from base that is free: other addresses and
// migrations have endpoints too. The error is os.ErrExist where the address itself is known.
func addEndpoint(addr netip.Addr, base uint8, flags mptcp.Flags) (at endpointAt, err error) {
	for id := base; id < base+mptcp.MaxEndpoints; id++ {
		at = endpointAt{id, addr}
		if err = mptcp.AddEndpoint(mptcp.Endpoint{ID: id, Addr: addr, Flags: flags}); !errors.Is(err, unix.EBUSY) { // the id is another's
			break
		}
	}
	return at, err
}

// dropEndpoints is the source's undoing of raiseMultipath.
func (m *outgoing) dropEndpoints() error {
	var err error
	for _, e := range m.work.endpoints {
		err = errors.Join(err, mptcp.DelEndpoint(e.id, e.addr))
	}
	m.work.endpoints = nil
	return err
}

// multipathLane is the one lane over all paths. Each time that it is opened, the next path
// has its first subflow: the one before may be cut.
func (m *outgoing) multipathLane(all []peer.Path) (paths.Lane, error) {
	port, err := strconv.ParseUint(m.work.prepared.Memory, 10, 16)
	if err != nil {
		return paths.Lane{}, &migration.Problem{Code: migration.CodePeer, Text: "prepare: the destination's port for memory is not one; bring both hosts to the same release"}
	}
	lane := paths.Lane{Path: "mptcp"}
	for _, p := range all {
		lane.Rate += pace(p, len(all), len(all))
	}
	var next atomic.Int64
	lane.Open = func(ctx context.Context) (net.Conn, error) {
		p := all[int(next.Add(1)-1)%len(all)]
		return m.link.OpenMultipath(ctx, p, uint16(port), peer.Header{Migration: m.plan.ID, Kind: laneKind}) //nolint:gosec // 16 bits
	}
	return lane, nil
}
