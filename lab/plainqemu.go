package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"time"

	"godwit/agent/api"
	"godwit/agent/record"
	"godwit/internal/clock"
	"godwit/lab/image"
	"godwit/lab/topo"
	"godwit/migration"
	"godwit/netstate"
	"godwit/netstate/netns"
	"godwit/vm"
	"godwit/vm/qemu"
)

// QEMU's own post-copy, which no agent of ours performs: it has one connection, and a guest
// whose connection breaks waits until a person mends it. Benches hold ours against it
// (Options.Plain): the lab does then what a person would, with the two QEMUs alone. The
// guest's network is not moved, so its clients lose it.

// plainPort is where the destination's QEMU listens.
const plainPort = 4990

// plainRounds is the copying before post-copy: a person lets all be read once.
const plainRounds = 2

// plain is one such move.
type plain struct {
	from, to *hostAgent
	source   *qemu.Process // in its agent's care, asked beside it
	there    *qemu.Process
	report   *record.Report
}

// plainMove performs m. On success the guest runs at the destination, in the care of nobody;
// the returned end takes it and its taps away.
func (r *run) plainMove(ctx context.Context, m *move) (_ *record.Report, end func(), err error) {
	p := plain{from: r.w.agents[m.from], to: r.w.agents[r.w.scenario.Hosts(m.to)[0]], report: &record.Report{
		ID: m.id, Guest: m.guest, From: m.from, To: m.to, Mode: "postcopy", Transfer: "plain", Network: "none", Requested: m.asked.UnixNano()}}
	info, err := r.guestInfo(ctx, m.guest)
	if err != nil {
		return nil, nil, err
	}
	if p.source, err = qemu.AttachSocket(ctx, filepath.Join(info.Dir, "look.sock"), info.PID, ""); err != nil {
		return nil, nil, err
	}
	defer p.source.Close()
	end, err = p.prepare(ctx, r.w, info)
	if err == nil {
		err = p.send(ctx)
	}
	if err != nil {
		end()
		return nil, nil, fmt.Errorf("plain post-copy of %s: %w", m.guest, err)
	}
	return p.report, end, nil
}

// movePlainly performs m, and notes what came of it.
func (r *run) movePlainly(ctx context.Context, m *move) {
	rep, end, err := r.plainMove(ctx, m)
	if err != nil {
		m.refuse(err)
	} else {
		m.set(rep)
		end()
	}
	r.probe(m.guest, nil)
	m.cpu += r.cpu.sum()
	close(m.done)
}

// prepare starts the QEMU that waits; end takes away what is there of it, also on an error.
func (p *plain) prepare(ctx context.Context, w *world, info api.GuestInfo) (end func(), err error) {
	host := p.to.host
	spec, taps, err := p.spec(ctx, w, info)
	end = func() {
		if p.there != nil {
			p.there.Kill() //nolint:errcheck // the namespace's end takes what is left
		}
		netns.Do(host.Namespace, func() error { //nolint:errcheck // as above
			for _, name := range taps {
				netstate.RemoveTap(name) //nolint:errcheck // as above
			}
			return nil
		})
		for _, nic := range spec.NICs {
			nic.Tap.Close()
		}
	}
	if err != nil {
		return end, err
	}
	if err = netns.Do(host.Namespace, func() (err error) {
		p.there, err = qemu.Start(ctx, spec)
		return err
	}); err != nil {
		return end, err
	}
	if err := p.capable(ctx, p.there, "postcopy-blocktime"); err != nil {
		return end, err
	}
	return end, p.there.QMP().Do(ctx, "migrate-incoming", map[string]string{"uri": p.uri()}, nil)
}

// uri is the destination's first uplink that carries migrations.
func (p *plain) uri() string {
	i := slices.IndexFunc(p.to.host.Uplinks, func(u topo.HostUplink) bool { return u.Carries != "guest" })
	return "tcp:" + net.JoinHostPort(p.to.host.Uplinks[i].V4.String(), fmt.Sprint(plainPort))
}

// spec is the source's machine, at the destination.
func (p *plain) spec(ctx context.Context, w *world, info api.GuestInfo) (spec qemu.Spec, taps []string, err error) {
	facts, err := p.source.Facts(ctx)
	if err != nil {
		return spec, nil, err
	}
	g := w.scenario.Guests[0]
	img := w.image
	if g.Image != image.Tiny {
		img = w.images[g.Image]
	}
	spec = qemu.Spec{
		Name: facts.Name, Memory: facts.Base, VCPUs: facts.VCPUs, Accel: facts.Accel, CPU: qemu.CPU(facts), Machine: facts.Machine, Incoming: true,
		Kernel: img.Kernel, Initrd: img.Initrd, Cmdline: img.Cmdline, Root: img.Root, Dir: filepath.Join(w.dir, "plain"),
	}
	for i, mac := range info.MACs {
		name := fmt.Sprintf("gwtp%c", 'a'+i)
		err := netns.Do(p.to.host.Namespace, func() error {
			tap, err := netstate.OpenTap(name, 1000, p.to.host.Bridge, 1500)
			if err == nil {
				spec.NICs = append(spec.NICs, qemu.NIC{ID: fmt.Sprintf("net%d", i), MAC: mac, Tap: tap})
			}
			return err
		})
		if err != nil {
			return spec, taps, err
		}
		taps = append(taps, name)
	}
	return spec, taps, nil
}

// capable sets what post-copy needs, and more, at one end; all else is QEMU's default.
func (p *plain) capable(ctx context.Context, q *qemu.Process, more ...string) error {
	var caps []map[string]any
	for _, name := range append([]string{"events", "return-path", "postcopy-ram"}, more...) {
		caps = append(caps, map[string]any{"capability": name, "state": true})
	}
	return q.QMP().Do(ctx, "migrate-set-capabilities", map[string]any{"capabilities": caps}, nil)
}

// send lets all be read once, then the guest run at the destination, and waits for its last page.
func (p *plain) send(ctx context.Context) error {
	if err := p.capable(ctx, p.source); err != nil {
		return err
	}
	events := p.source.Events(ctx)
	params := map[string]any{"max-bandwidth": int64(1) << 40, "downtime-limit": 1}
	if err := p.source.QMP().Do(ctx, "migrate-set-parameters", params, nil); err != nil {
		return err
	}
	before := p.wire()
	if err := p.source.QMP().Do(ctx, "migrate", map[string]string{"uri": p.uri()}, nil); err != nil {
		return err
	}
	if err := p.await(ctx, func(g vm.Progress) bool { return g.Rounds >= plainRounds }); err != nil {
		return err
	}
	if err := p.source.QMP().Do(ctx, "migrate-start-postcopy", nil, nil); err != nil {
		return err
	}
	for e := range events {
		if e.Name == "STOP" {
			p.report.Paused = e.At.UnixNano()
			break
		}
	}
	for {
		status, err := p.there.Status(ctx)
		if err != nil {
			return err
		}
		if status == vm.Paused || status == vm.Running {
			break
		}
		if !clock.Sleep(ctx, time.Millisecond) {
			return ctx.Err()
		}
	}
	if err := p.there.QMP().Do(ctx, "cont", nil, nil); err != nil {
		return err
	}
	p.report.Resumed = time.Now().UnixNano()
	if err := p.await(ctx, func(g vm.Progress) bool { return g.Status == vm.Completed }); err != nil {
		return err
	}
	p.report.MemoryDone = time.Now().UnixNano()
	p.report.Ended, p.report.Outcome = p.report.MemoryDone, migration.Completed
	p.report.LastTick, p.report.FirstTick = &record.Tick{At: p.report.Paused}, &record.Tick{At: p.report.Resumed} // as QEMU told
	p.report.WireBytes = map[string]int64{"plain": p.wire() - before}
	return p.stalls(ctx)
}

// await looks at the source until so is; a migration that fails is an error.
func (p *plain) await(ctx context.Context, so func(vm.Progress) bool) error {
	for {
		g, err := p.source.Progress(ctx)
		switch {
		case err != nil:
			return err
		case so(g):
			p.report.Rounds = int(g.Rounds)
			return nil
		case g.Status.Ended():
			return errors.New("QEMU ended it: " + string(g.Status) + " " + g.Error)
		case g.Status == vm.PostcopyPaused:
			return errors.New("QEMU paused it: its connection broke")
		}
		if !clock.Sleep(ctx, 20*time.Millisecond) {
			return ctx.Err()
		}
	}
}

// stalls notes for how long the guest waited for pages, by the word of QEMU at the destination
// (postcopy-blocktime: all its processors at once).
func (p *plain) stalls(ctx context.Context) error {
	var there, here struct {
		Block uint32 `json:"postcopy-blocktime"` // ms
		RAM   struct {
			Requests int `json:"postcopy-requests"`
		} `json:"ram"`
	}
	if err := p.there.QMP().Do(ctx, "query-migrate", nil, &there); err != nil {
		return err
	}
	if err := p.source.QMP().Do(ctx, "query-migrate", nil, &here); err != nil {
		return err
	}
	post := &record.PostCopy{Why: "QEMU's own, after all was read once", Faults: here.RAM.Requests,
		LastedS: float64(p.report.MemoryDone-p.report.Resumed) / 1e9}
	if post.Faults > 0 {
		post.MeanMS = float64(there.Block) / float64(post.Faults)
	}
	p.report.PostCopy = post
	return nil
}

// wire is what the source's host has sent by its uplinks, bytes with Ethernet's headers.
func (p *plain) wire() int64 { return p.from.host.Sent() }
