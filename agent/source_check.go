package agent

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"godwit/agent/peer"
	"godwit/migration"
	"godwit/policy"
	"godwit/vm"
)

// Migrate begins a migration and returns its id. The error of a request that
// cannot begin is a *migration.Problem; nothing has changed then.
func (a *Agent) Migrate(req migration.Request) (MigrateAnswer, error) {
	m, err := a.newOutgoing(req)
	if err != nil {
		return MigrateAnswer{}, err
	}
	a.actors.Go(func() { m.run(a.ctx, migration.Input{Kind: migration.Start, Epoch: m.plan.Epoch}) })
	return MigrateAnswer{ID: m.plan.ID}, nil
}

// MigrateAnswer names the migration that has begun.
type MigrateAnswer struct {
	ID string `json:"id"`
}

// supported is what this version performs, of the values that a request may name.
var (
	supportedModes     = []string{"auto", "precopy", "hybrid", "postcopy", "stopcopy"}
	supportedTransfers = []string{"auto", "lanes", "mptcp", "qemu-tcp", "qemu-mptcp", "qemu-multifd", "qemu-xbzrle"}
)

// checkRequest fills defaults and refuses what no migration can mean.
func checkRequest(req *migration.Request) error {
	wrong := func(format string, a ...any) error {
		return &migration.Problem{Code: migration.CodeUsage, Text: "migrate guest " + req.Guest + ": " + fmt.Sprintf(format, a...)}
	}
	defaults := []struct {
		value     *string
		what      string
		known     []string
		supported []string
	}{
		{&req.Mode, "mode", migration.Modes, supportedModes},
		{&req.Transfer, "transfer", migration.Transfers, supportedTransfers},
		{&req.Network, "network", migration.Networks, migration.Networks},
		{&req.TunnelKind, "tunnel", migration.Tunnels, migration.Tunnels},
	}
	for _, d := range defaults {
		if *d.value == "" {
			*d.value = "auto"
		}
		switch {
		case !slices.Contains(d.known, *d.value):
			return wrong("%s %q is unknown; allowed: %s", d.what, *d.value, strings.Join(d.known, ", "))
		case !slices.Contains(d.supported, *d.value):
			return wrong("%s %s is not there yet; use one of: %s", d.what, *d.value, strings.Join(d.supported, ", "))
		}
	}
	switch {
	case req.Downtime != 0 && req.Downtime < time.Millisecond || req.Downtime > time.Minute:
		return wrong("downtime budget of %v; between 1ms and 1m", req.Downtime)
	case req.Bandwidth < 0:
		return wrong("bandwidth of %d bit/s", req.Bandwidth)
	case req.Buffer != 0 && req.Buffer < leastRequested:
		return wrong("buffer of %d bytes; at least %d", req.Buffer, leastRequested)
	case req.Buffer != 0 && strings.HasPrefix(req.Transfer, "qemu-"):
		return wrong("buffer goes with the transfers lanes and mptcp only; drop it, or name one of them")
	case req.Throttle < 0 || req.Throttle > 99:
		return wrong("throttle of %d %%; between 1 and 99, or 0 for none", req.Throttle)
	case req.Throttle > 0 && req.Mode != "precopy":
		return wrong("throttle goes with mode precopy only; drop it, or name that mode")
	case req.InsecureTransfer && !strings.HasPrefix(req.Transfer, "qemu-"):
		return wrong("insecure_transfer goes with the qemu-* transfers only; drop it, or name one")
	}
	if mode := req.Mode; (mode == "hybrid" || mode == "postcopy") && strings.HasPrefix(req.Transfer, "qemu-") {
		return wrong("mode %s goes with the transfers lanes and mptcp only; drop the transfer, or name one of them", mode)
	}
	if req.Downtime == 0 {
		req.Downtime = migration.DefaultDowntime
	}
	return nil
}

// newOutgoing checks what can be told without asking anybody, takes the guest, and
// journals that the migration begins.
func (a *Agent) newOutgoing(req migration.Request) (*outgoing, error) {
	m, err := a.draft(req)
	if err != nil {
		return nil, err
	}
	if err := a.beginOutgoing(m); err != nil {
		m.guest.drop(m.plan.ID)
		return nil, err
	}
	return m, nil
}

// Plan asks both hosts what a migration would be, and changes nothing. Its error is
// what the migration would be refused with.
func (a *Agent) Plan(ctx context.Context, req migration.Request) (Report, error) {
	m, err := a.draft(req)
	if err != nil {
		return Report{}, err
	}
	defer m.guest.drop(m.plan.ID)
	for _, e := range []migration.Effect{migration.CheckHere, migration.CheckThere} {
		if err := m.perform(ctx, e); err != nil {
			return Report{}, err
		}
	}
	return m.rec.snapshot(), nil
}

// draft is a migration that has not begun; the guest is taken for it.
func (a *Agent) draft(req migration.Request) (*outgoing, error) {
	if err := checkRequest(&req); err != nil {
		return nil, err
	}
	g, err := a.guests.find(req.Guest)
	if err != nil {
		return nil, err
	}
	if req.Network == "auto" && g.Held.Description.Network != "" {
		req.Network = g.Held.Description.Network
	}
	if req.To == a.config.Host || req.To == a.config.Site && !a.hasSibling() {
		return nil, &migration.Problem{Code: migration.CodeUsage, Text: fmt.Sprintf("migrate guest %s: it is on %s already", req.Guest, req.To)}
	}
	link, n, err := a.link(req.To)
	if err != nil {
		return nil, err
	}
	plan := migration.Plan{
		ID: newID(), Guest: req.Guest, From: a.config.Host, To: n.Host, FromSite: a.config.Site, ToSite: n.Site,
		Mode: req.Mode, Transfer: req.Transfer, Network: req.Network, Tunnel: req.TunnelKind, Downtime: req.Downtime,
		Bandwidth: req.Bandwidth, Buffer: req.Buffer, Throttle: req.Throttle, Insecure: req.InsecureTransfer, Want: req.NextAddress,
		Epoch: g.Held.Epoch + 1, Held: g.Held.Addresses, Active: g.Held.Active,
	}
	if err := g.take(plan.ID); err != nil {
		return nil, err
	}
	return &outgoing{
		bandwidth: bandwidth{bits: plan.Bandwidth},
		a:         a, guest: g, link: link, plan: plan, work: &sourceWork{},
		rec: newRecord(a.config.Host, plan, a.clock()), inbox: make(chan migration.Input, 1),
	}, nil
}

func (a *Agent) hasSibling() bool {
	return slices.ContainsFunc(a.config.Peers, func(n Neighbour) bool { return n.Site == a.config.Site })
}

// checkHere finds out whether this host and the guest can do it.
func (m *outgoing) checkHere(ctx context.Context) error {
	g := m.guest
	refuse := func(code migration.Code, format string, a ...any) error {
		return &migration.Problem{Code: code, Text: "migrate guest " + m.plan.Guest + ": " + fmt.Sprintf(format, a...)}
	}
	facts, err := g.Machine.Facts(ctx)
	if err != nil {
		return err
	}
	m.work.facts = facts
	status, err := g.Machine.Status(ctx)
	if err != nil {
		return err
	}
	if err := unfit(refuse, g.Held, g.hasChannel(), m.plan.KeepsAddress(), facts, status); err != nil {
		return err
	}
	if err := m.checkHooks(); err != nil {
		return err
	}
	m.measureWriting()
	return m.checkGuest(ctx, refuse)
}

// unfit says why a guest cannot leave here, by its description and by what its
// hypervisor told; nil if it can. keeps: it keeps its address.
func unfit(refuse func(migration.Code, string, ...any) error, held Held, channel, keeps bool, facts vm.Facts, status vm.Status) error {
	switch {
	case status != vm.Running:
		return refuse(migration.CodeGuest, "it is %s; start it or resume it first", status)
	case len(facts.Blockers) > 0:
		return refuse(migration.CodeHypervisor, "QEMU cannot migrate it: %s; take that device away, or make it one that can migrate",
			strings.Join(strings.Fields(strings.Join(facts.Blockers, "; ")), " "))
	case facts.Accel == "tcg" && major(facts.Version) < 10:
		return refuse(migration.CodeHypervisor, "QEMU %s corrupts the memory of a migrated TCG guest; use QEMU 10 or newer (on Debian 12 from backports), or KVM", facts.Version)
	case len(held.Taps) < 2 && !keeps:
		return refuse(migration.CodeGuest, "it has no second NIC for the next address; add one, or keep the address with --network tunnel")
	case !channel && !keeps:
		return refuse(migration.CodeGuest, "it has no guest channel to set the next address; add one, or keep the address with --network tunnel")
	case held.Description.silent() && held.kept().IsValid():
		return refuse(migration.CodeGuest, "its other NIC still has %s, which nobody in the guest could move; wait until that lease has ended (`godwit guest show %s`)", held.kept(), held.Description.Name)
	case held.Description.QMP != "" && len(held.Description.Start) == 0:
		return refuse(migration.CodeGuest, "its description has no start command; write one, so that it can be received elsewhere, then `godwit guest forget` and adopt it again")
	}
	return unfitDisks(refuse, held.Description.Disks, facts.Disks)
}

// bestTransfer is what `auto` means: our own data path, where QEMU can be held cleanly, or
// where nothing else has the mode.
func bestTransfer(facts vm.Facts, mode string) string {
	if facts.Hold == vm.HoldAck || mode == "hybrid" || mode == "postcopy" {
		return "lanes"
	}
	return "qemu-multifd"
}

// checkGuest asks the guest itself, and settles what `auto` means for it.
func (m *outgoing) checkGuest(ctx context.Context, refuse func(migration.Code, string, ...any) error) error {
	if m.plan.Transfer == "auto" {
		m.plan.Transfer = bestTransfer(m.work.facts, m.plan.Mode)
	}
	if !m.guest.hasChannel() { // it keeps its address, see unfit
		return nil
	}
	info, err := m.guest.info(ctx)
	if err != nil {
		if m.plan.KeepsAddress() {
			return nil
		}
		return refuse(migration.CodeGuest, "its guest channel does not answer (%v); see whether the guest is well", err)
	}
	if d := m.guest.Held.Description; d.silent() {
		m.rec.note("nobody in the guest can be asked (agent: dhcp): its next address is given by DHCP, which connections follow is its own path manager's work and is not waited for, and its pause is not measured; godwit-guest in it can do these (docs/guest.md)")
	} else if !slices.Contains(info.Capabilities, "ticks") {
		m.rec.note("the guest has the QEMU guest agent only: its own pause is not measured, connections that miss the announcement of the next address are not told again, and datagrams to its old address do not keep the tunnel; godwit-guest in it can do these (docs/guest.md)")
	}
	m.work.capabilities = info.Capabilities
	m.settleNetwork(ctx)
	if (m.plan.Network == "mptcp" || m.plan.Chosen) && !info.MPTCP {
		m.plan.Chosen = false
		m.rec.note("the guest's kernel has no MPTCP: old connections stay on the tunnel (network drain)")
		m.plan.Network = "drain"
	}
	m.rec.edit(func(r *Report) { r.Mode, r.Transfer, r.Network = m.plan.Mode, m.plan.Transfer, m.plan.Network })
	return nil
}

// checkThere asks the destination, tries the path of the tunnel and predicts.
func (m *outgoing) checkThere(ctx context.Context) error {
	n, _ := m.a.config.find(m.plan.To, m.a.config.Host)
	if err := m.overlap(n); err != nil {
		return err
	}
	m.work.offer = Offer{
		Plan: m.plan, Description: m.guest.Held.Description, Facts: m.work.facts, CPUFlags: cpuFlags(m.work.facts.Accel),
		Touched: residentBytes(m.guest.Machine.PID()), Endpoint: m.guest.Held.Endpoint, Table: m.guest.Held.Table,
		MTU: m.a.config.Network.MTU,
	}
	root, err := m.a.config.rootMark(m.work.offer.Description)
	if err != nil {
		return &migration.Problem{Code: migration.CodeGuest, Text: fmt.Sprintf("migrate guest %s: %v", m.plan.Guest, err)}
	}
	m.work.offer.Root = root
	askCtx, cancel := limitAskThere.on(ctx)
	defer cancel()
	sent := time.Now()
	if err := says(askCtx, m.call(askCtx, "check", m.work.offer, &m.work.accepted)); err != nil {
		return err
	}
	back := time.Now()
	if err := m.work.accepted.check(m.plan, n); err != nil {
		return err
	}
	m.plan.Next = m.work.accepted.Next
	if err := announceable(m.plan, m.work.capabilities); err != nil {
		return err
	}
	local, remote, err := m.a.config.ways(m.plan, n)
	if err != nil {
		return err
	}
	size := m.a.config.Network.MTU + mostOverhead
	rtt, err := probePath(ctx, local.Address, netip.AddrPortFrom(remote.Address, m.a.config.Port), m.work.accepted.Token, size)
	if err != nil {
		return err
	}
	m.work.rtt = rtt
	tunnels := make(chan error, 1)
	go func() { tunnels <- m.tryTunnel(ctx, local.Address, remote.Address) }() // beside the sizes: it takes round trips, too
	m.fit(ctx, local.Address, netip.AddrPortFrom(remote.Address, m.a.config.Port))
	if err := <-tunnels; err != nil {
		return err
	}
	if err := m.checkTunnel(local.Address, remote.Address); err != nil {
		return err
	}
	m.work.skew = time.Duration(m.work.accepted.Now - (sent.UnixNano()+back.UnixNano())/2)
	if abs(m.work.skew) < back.Sub(sent)/2 {
		m.work.skew = 0 // within what the measurement cannot tell from none
	}
	if err := m.settleMode(ctx, m.carried(n)); err != nil {
		return err
	}
	m.predict(n)
	m.rec.edit(func(r *Report) { r.Old, r.Next, r.Free = m.plan.Held, m.plan.Next, m.work.accepted.Free })
	return nil
}

func abs(d time.Duration) time.Duration {
	if d < 0 {
		return -d
	}
	return d
}

// overlap refuses sites whose guests' subnets overlap: an address could be in both.
func (m *outgoing) overlap(n Neighbour) error {
	if n.Site == m.a.config.Site {
		return nil
	}
	for _, pair := range [][2]netip.Prefix{{m.a.config.Network.V4, n.V4}, {m.a.config.Network.V6, n.V6}} {
		if pair[0].IsValid() && pair[1].IsValid() && pair[0].Overlaps(pair[1]) {
			return &migration.Problem{Code: migration.CodeAddress, Text: fmt.Sprintf(
				"migrate guest %s: the guests' subnets of %s (%s) and %s (%s) overlap; give the sites different subnets",
				m.plan.Guest, m.plan.FromSite, pair[0], m.plan.ToSite, pair[1])}
		}
	}
	return nil
}

func (m *outgoing) predict(n Neighbour) {
	ratio := 1.0
	if m.plan.Transfer == "qemu-multifd" || ownPath(m.plan) {
		ratio = 0.5 // zstd on the memory of ordinary guests (docs/measurements.md)
	}
	var dirty int64
	if m.plan.Mode == "precopy" { // with any other the rest follows
		dirty = m.work.dirty
	}
	f := policy.Predict(policy.Facts{
		Touched: min(m.work.offer.Touched, m.work.facts.Memory), Memory: m.work.facts.Memory,
		Disk: diskData(m.guest.Held.Description.Disks), Rate: m.carried(n), RTT: m.work.rtt, Ratio: ratio, Budget: m.plan.Downtime,
		DirtyRate: dirty, MostThrottle: m.a.config.mostThrottle(m.plan),
	})
	m.rec.edit(func(r *Report) {
		r.Predicted = &Prediction{f.Migration.Seconds(), float64(f.Downtime.Microseconds()) / 1000, f.WireBytes, f.Throttled}
		r.MemoryBytes = m.work.facts.Memory
	})
}

// carried is what the migration's paths carry at most, bits per second; 0 if unknown.
func (m *outgoing) carried(n Neighbour) int64 {
	var rate int64
	for _, p := range m.paths(n) {
		rate += p.Rate
	}
	if m.plan.Bandwidth > 0 && (rate == 0 || m.plan.Bandwidth < rate) {
		rate = m.plan.Bandwidth
	}
	return rate
}

// paths are those that this migration's transfer uses.
func (m *outgoing) paths(n Neighbour) []peer.Path { return transferPaths(m.plan, m.a.config.paths(n)) }

func major(version string) int {
	n, _ := strconv.Atoi(strings.SplitN(version, ".", 2)[0])
	return n
}

// residentBytes is what a process has in memory.
func residentBytes(pid int) int64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(data))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize())
}

// cpuFlags are the processor's features; they matter with KVM only.
func cpuFlags(accel string) string {
	if accel != "kvm" {
		return ""
	}
	data, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for _, line := range strings.Split(string(data), "\n") {
		if name, flags, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "flags" {
			return strings.TrimSpace(flags)
		}
	}
	return ""
}
