package agent

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"godwit/agent/capable"
	"godwit/agent/config"
	"godwit/agent/handed"
	"godwit/agent/limits"
	"godwit/agent/peer"
	"godwit/agent/record"
	"godwit/agent/talk"
	"godwit/agent/ways"
	"godwit/migration"
	"godwit/netstate"
	"godwit/vm"
	"godwit/vm/guest"
)

// checkHere finds out whether this host and the guest can do it.
func (m *outgoing) checkHere(ctx context.Context) error {
	g := m.guest
	if err := m.a.wayBack(m.plan); err != nil {
		return err
	}
	m.settleHome(ctx)
	if err := m.a.awaitHeard(ctx, g); err != nil {
		return err
	}
	facts, err := g.Machine().Facts(ctx)
	if err != nil {
		return err
	}
	m.work.facts = facts
	status, err := g.Machine().Status(ctx)
	if err != nil {
		return err
	}
	if err := (capable.Leaver{Held: g.Held(), Channel: g.HasChannel(), Keeps: m.plan.KeepsAddress(), Facts: facts, Status: status}).Unfit(m.problem); err != nil {
		return err
	}
	if err := capable.UnfitPages(m.problem, m.plan.Mode, facts); err != nil {
		return err
	}
	if err := netstate.Barred(m.a.config.Network.Bridge); err != nil {
		return m.problem(migration.CodePath, "%v", err)
	}
	if err := m.checkHooks(); err != nil {
		return err
	}
	m.link.Ahead() // while the guest answers
	m.beginSample()
	m.measureWriting()
	return m.checkGuest(ctx)
}

// problem is the error of this migration, which begins with its guest.
func (m *outgoing) problem(code migration.Code, format string, a ...any) error {
	return &migration.Problem{Code: code, Text: "migrate guest " + m.plan.Guest + ": " + fmt.Sprintf(format, a...)}
}

// bestTransfer is what `auto` means: our own data path, where QEMU can be held cleanly, or
// where nothing else has the mode.
func bestTransfer(facts vm.Facts, mode string) string {
	if facts.Hold == vm.HoldAck || mode == "hybrid" || mode == "postcopy" {
		return "lanes"
	}
	return capable.QEMUTransfer(facts)
}

// checkGuest asks the guest itself, and settles what `auto` means for it, which the report has from then on.
func (m *outgoing) checkGuest(ctx context.Context) error {
	if m.plan.Transfer == "auto" {
		m.plan.Transfer = bestTransfer(m.work.facts, m.plan.Mode)
	}
	if err := capable.UnfitTransfer(m.problem, m.plan, m.work.facts); err != nil {
		return err
	}
	if free, err := capable.AvailableMemory(); err == nil && m.plan.OwnPath() {
		if why := capable.LacksRoomToSend(m.work.facts, free); why != "" {
			return m.problem(migration.CodeCapacity, "%s", why)
		}
	}
	if err := m.roomToSpill(); err != nil {
		return err
	}
	if err := m.askGuest(ctx); err != nil {
		return err
	}
	m.noteHome()
	m.noteUnit()
	m.rec.Edit(func(r *record.Report) { r.Mode, r.Transfer, r.Network = m.plan.Mode, m.plan.Transfer, m.plan.Network })
	return nil
}

// noteUnit tells of what may start a guest again whose QEMU ends here.
func (m *outgoing) noteUnit() {
	if unit := m.work.facts.Unit; unit != "" && m.guest.Held().Description.QMP != "" {
		m.rec.Note(fmt.Sprintf("%s runs its QEMU here, which ends as the guest moves: have nothing start it again then (Restart=, a boot, a cluster), "+
			"it would be a second copy (docs/agent.md, What starts it again)", unit))
	}
}

// askGuest is checkGuest for what only the guest itself knows. One that cannot be asked, or is silent, and keeps its
// address needs not be.
func (m *outgoing) askGuest(ctx context.Context) error {
	m.work.boot = m.guest.Held().ComesIn(guest.Info{}) // one that does not answer may be booting anew
	if !m.guest.HasChannel() {                         // it keeps its address, see unfit
		return nil
	}
	info, err := m.guest.Info(ctx)
	if err != nil {
		if m.plan.KeepsAddress() {
			return nil
		}
		return m.problem(migration.CodeGuest, "its guest channel does not answer (%v); see whether the guest is well", err)
	}
	if d := m.guest.Held().Description; d.Silent() {
		m.rec.Note("nobody in the guest can be asked (agent: dhcp): its next address is given by DHCP, which connections follow is its own path manager's work and is not waited for, and its pause is not measured; godwit-guest in it can do these (docs/guest.md)")
	} else if !slices.Contains(info.Capabilities, "ticks") {
		m.rec.Note("the guest has the QEMU guest agent only: its own pause is not measured, connections that miss the announcement of the next address are not told again, datagrams to its old address do not keep the tunnel, and servers of QUIC may lose their connections; godwit-guest in it can do these (docs/guest.md)")
	}
	m.work.capabilities = info.Capabilities
	m.work.boot = m.guest.Held().ComesIn(info)
	m.work.noIPv6 = handed.LacksIPv6(info, m.guest.Held().Description.NICs, m.plan.Held)
	m.noteUnread(info.Unread)
	m.dropFirst(ctx)
	m.noteUntold(info)
	m.reconsiderHome(info)
	m.reconsiderOld(ctx)
	if err := m.settleAbove(info); err != nil {
		return err
	}
	m.settleNetwork(ctx)
	if (m.plan.Network == "mptcp" || m.plan.Chosen) && !info.MPTCP {
		m.plan.Chosen = false
		m.rec.Note("the guest's kernel has no MPTCP: old connections stay on the tunnel (network drain)")
		m.plan.Network = "drain"
	}
	return nil
}

// checkThere asks the destination, tries the path of the tunnel and predicts.
func (m *outgoing) checkThere(ctx context.Context) error {
	n, _ := m.a.config.Peer(m.plan.To)
	if err := m.overlap(n); err != nil {
		return err
	}
	if err := m.askThere(ctx, n); err != nil {
		return err
	}
	if err := m.takesDisks(); err != nil {
		return err
	}
	m.plan.Next = m.work.accepted.Next
	m.noteUsers(ctx)
	if err := m.settleAnnounced(); err != nil {
		return err
	}
	m.noteUnseen()
	m.noteApart(ctx)
	m.noteListeners(ctx)
	if err := m.tryPaths(ctx, n); err != nil {
		return err
	}
	if err := m.settleMode(ctx, m.carried(n)); err != nil {
		return err
	}
	if err := m.budgetFits(n); err != nil {
		return err
	}
	m.predict(ctx, n, m.foreseen(ctx))
	m.rec.Edit(func(r *record.Report) { r.Old, r.Next, r.Free = m.plan.Held, m.plan.Next, m.work.accepted.Free })
	return nil
}

// askThere has the destination say whether it can take the guest, and its clock.
func (m *outgoing) askThere(ctx context.Context, n config.Neighbour) error {
	m.work.offer = talk.Offer{
		Plan: m.plan, Description: m.guest.Held().Description, Facts: m.work.facts, CPUFlags: capable.Flags(m.work.facts),
		Touched: capable.ResidentBytes(m.guest.Machine().PID()), Endpoint: m.guest.Held().Endpoint,
		MTU: m.a.config.Network.MTU, NoIPv6: m.work.noIPv6,
	}
	root, err := m.a.config.RootMark(m.work.offer.Description)
	if err != nil {
		return m.problem(migration.CodeGuest, "%v", err)
	}
	m.work.offer.Root = root
	m.lookAtDisks(ctx, float64(m.carried(n))/8)
	taken := m.sampled(ctx)
	if m.plan.OwnPath() {
		m.work.offer.Sample = taken.Asked()
	}
	ctx, cancel := limits.AskThere.On(ctx)
	defer cancel()
	sent := time.Now()
	if err := limits.Says(ctx, m.call(ctx, "check", m.work.offer, &m.work.accepted)); err != nil {
		return err
	}
	back := time.Now()
	if err := m.work.accepted.Check(m.plan, n); err != nil {
		return err
	}
	m.work.accepted.Sane()
	for _, note := range m.work.accepted.Notes {
		m.rec.NoteOnce("host " + m.plan.To + ": " + note)
	}
	m.work.skew = time.Duration(m.work.accepted.Now - (m.rec.Stamp(sent)+m.rec.Stamp(back))/2)
	if m.work.skew.Abs() < back.Sub(sent)/2 {
		m.work.skew = 0 // within what the measurement cannot tell from none
	}
	m.foresee(n, taken)
	return nil
}

// tryPaths tries the tunnel's path, and what else the plan rests on: each takes round trips, so they are tried beside
// one another.
func (m *outgoing) tryPaths(ctx context.Context, n config.Neighbour) error {
	guests, err := m.a.config.Ways(m.plan, n)
	if err != nil {
		return err
	}
	trying, end := context.WithCancel(ctx)
	defer end()
	trips := m.beginRoundTrips(trying, n)
	m.beginTrains(ctx, n)
	if err := m.chooseGuestPath(ctx, guests, m.a.hasTunnel); err != nil {
		return err
	}
	local, remote := m.work.guestPath.Local, m.work.guestPath.Remote
	m.fit(ctx, local, netip.AddrPortFrom(remote, m.a.config.Port))
	m.choosePaths(n, trips())
	m.measureMemoryPaths(ctx, n)
	m.noteBuffers(ways.Connections(m.plan, m.paths(n), m.work.trips))
	return m.checkTunnel(local, remote)
}

// overlap refuses sites whose guests' subnets overlap: an address could be in both.
func (m *outgoing) overlap(n config.Neighbour) error {
	if n.Site == m.a.config.Site {
		return nil
	}
	for _, pair := range [][2]netip.Prefix{{m.a.config.Network.V4, n.V4}, {m.a.config.Network.V6, n.V6}} {
		if pair[0].IsValid() && pair[1].IsValid() && pair[0].Overlaps(pair[1]) {
			return m.problem(migration.CodeAddress,
				"the guests' subnets of %s (%s) and %s (%s) overlap; give the sites different subnets",
				m.plan.FromSite, pair[0], m.plan.ToSite, pair[1])
		}
	}
	return nil
}

// carried is what the migration's paths carry at most, bits per second; 0 if that is not known of each.
func (m *outgoing) carried(n config.Neighbour) int64 {
	rate := ways.Rate(m.answering(m.paths(n)))
	for _, most := range []int64{m.bandwidth.Bits(), m.carry} {
		if most > 0 && (rate == 0 || most < rate) {
			rate = most
		}
	}
	return rate
}

// paths are those that this migration's transfer uses.
func (m *outgoing) paths(n config.Neighbour) []peer.Path {
	return ways.Of(m.plan, m.a.config.Paths(n))
}
