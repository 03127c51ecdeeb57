package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"godwit/agent/config"
	"godwit/agent/ends"
	"godwit/agent/limits"
	"godwit/agent/peer"
	"godwit/agent/probe"
	"godwit/agent/uplinks"
	"godwit/agent/ways"
	"godwit/migration"
	"godwit/transfer"
)

// A direct transfer is QEMU's own connection to the destination's agent, which
// hands it to the waiting QEMU and keeps the switchover back. It runs inside one
// WireGuard tunnel for each pair of uplinks, or, when insecure transfer was asked
// for, over the uplinks as they are.

// mayGoOpen says whether memory goes unencrypted, over connections of QEMU's own. It does not
// where a bandwidth was asked for that those do not keep: of QEMU 10's multifd some 108 Mbit/s were
// seen where 40 were asked for, perhaps as its packets of 512 KiB are much for a tenth of a second. Our forwarder keeps it.
func mayGoOpen(req migration.Request) bool {
	return req.InsecureTransfer && (req.Transfer != "qemu-multifd" || req.Bandwidth == 0)
}

// measureMemoryPaths finds out how large a packet each path of a direct transfer carries in one
// piece. QEMU's connection goes at full speed: what was sent in fragments would be two packets
// each for a link's queue, and lost with either.
func (m *outgoing) measureMemoryPaths(ctx context.Context, n config.Neighbour) {
	m.work.memoryMTUs = nil
	if !m.plan.Direct() || m.plan.Insecure {
		return
	}
	paths := m.paths(n)
	mtus := make([]int, len(paths))
	var all sync.WaitGroup
	for k, p := range paths {
		if p.Local.Is6() { // tunnels cut what is larger, see netstate/tunnel
			mtus[k] = ends.LeastMemoryMTU
			continue
		}
		all.Go(func() {
			most := 1500 // Ethernet's, unless guests' packets are larger
			if m.a.config.Network.MTU > most {
				most = probe.Largest
			}
			wait := 4*m.work.trips[k] + 100*time.Millisecond // such packets take longer
			path, _ := probe.MTU(ctx, p.Local, netip.AddrPortFrom(p.Remote, m.a.config.Port), m.work.accepted.Token, most, wait)
			mtus[k] = min(max(path-mostOverhead, ends.LeastMemoryMTU), ends.MostMemoryMTU)
		})
	}
	all.Wait()
	m.work.memoryMTUs = mtus
}

// prepareDirect listens for the source QEMU's own connection, if the transfer is direct.
func (m *incoming) prepareDirect(ctx context.Context) error {
	if !m.plan.Direct() {
		return nil
	}
	p := m.work.preparation
	paths := m.paths()
	var addrs []netip.Addr
	if m.plan.Insecure {
		addrs = locals(paths)
	} else {
		mtus := make([]int, len(p.MemoryTunnels))
		for k, t := range p.MemoryTunnels {
			mtus[k] = t.MTU
		}
		offers, configs, err := ends.OfferMemory(m.a.config, m.plan.ID, paths, mtus, p.MemoryTunnels, p.InnerUsed)
		if err != nil {
			return err
		}
		tunnels, err := ends.RaiseMemory(ctx, configs, p.MemoryTunnels)
		if err != nil {
			return err
		}
		m.work.prepared.Tunnels = offers
		for _, t := range tunnels {
			addrs = append(addrs, t.Inner)
		}
	}
	return m.listenDirect(addrs)
}

// paths are those that its transfer uses, in the order in which the source has them, seen from here.
func (m *incoming) paths() []peer.Path {
	n, _ := m.a.config.Peer(m.plan.From)
	all := ways.Of(m.plan, (&config.Config{Uplinks: n.Uplinks}).Paths(config.Neighbour{Uplinks: m.a.config.Uplinks}))
	for i, p := range all {
		all[i].Local, all[i].Remote = p.Remote, p.Local
	}
	return all
}

func (m *incoming) holdStream() *transfer.HoldListener {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.work.holdStream
}

// listenDirect listens on the first address and announces the others to QEMU's
// MPTCP connection.
func (m *incoming) listenDirect(addrs []netip.Addr) error {
	if len(addrs) == 0 {
		return &migration.Problem{Code: migration.CodePath, Text: "no uplink on both hosts carries migrations"}
	}
	over := m.plan.Transfer == "qemu-mptcp"
	hold := transfer.Hold{Address: netip.AddrPortFrom(addrs[0], 0).String(), MPTCP: over, QEMUSocket: m.incomingSocket()}
	if over {
		hold.Joins = addrs[1:]
	}
	ln, err := transfer.ListenHold(m.a.ctx, hold)
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.work.holdStream = ln
	m.mu.Unlock()
	m.work.prepared.Memory = "tcp:" + netip.AddrPortFrom(addrs[0], ln.Addr().Port()).String()
	if !over {
		return nil
	}
	m.work.prepared.Memory += ",mptcp=on"
	m.work.endpoints, err = m.a.endpoints.Announce(addrs[1:])
	return err
}

// endDirect ends what prepareDirect and prepareMultipath made.
func (m *incoming) endDirect(ctx context.Context) error {
	return m.a.endDirect(ctx, m.plan, &m.work.endpoints)
}

// endDirect drops the endpoints of a migration, and the tunnels for memory that this host has for it.
func (a *Agent) endDirect(ctx context.Context, plan migration.Plan, made *[]uplinks.Endpoint) error {
	err := a.endpoints.Drop(*made)
	*made = nil
	if plan.Direct() && !plan.Insecure {
		err = errors.Join(err, ends.DropMemory(ctx, a.config, plan.ID))
	}
	return err
}

// raiseDirect is the source's part: its ends of the tunnels, and a path manager
// that follows what the destination announces.
func (m *outgoing) raiseDirect(ctx context.Context) error {
	if !m.plan.Direct() {
		return nil
	}
	if m.plan.Transfer == "qemu-mptcp" {
		var err error
		if m.work.endpoints, err = m.a.endpoints.RaiseLimits(); err != nil {
			return err
		}
	}
	if m.plan.Insecure {
		return nil
	}
	tunnels, err := ends.RaiseMemory(ctx, m.work.memoryTunnels, m.work.prepared.Tunnels)
	if err != nil {
		return err
	}
	for _, t := range tunnels {
		if err := limits.TryTunnel.Do(ctx, t.Verify); err != nil {
			return &migration.Problem{Code: migration.CodePath, Text: fmt.Sprintf("tunnel for memory to %s: %v", t.Remote, err)}
		}
	}
	return nil
}

// endDirect ends what raiseDirect and openLanes made.
func (m *outgoing) endDirect(ctx context.Context) error {
	return m.a.endDirect(ctx, m.plan, &m.work.endpoints)
}
