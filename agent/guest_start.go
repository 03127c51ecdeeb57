package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/described"
	"godwit/agent/guests"
	"godwit/agent/handed"
	"godwit/agent/limits"
	"godwit/agent/line"
	"godwit/agent/logs"
	"godwit/agent/peer"
	"godwit/internal/lists"
	"godwit/migration"
	"godwit/netstate"
	"godwit/vm"
	"godwit/vm/qemu"
)

// tapQueue is the length of a guest's tap queues, packets: what may wait for a
// paused guest, at full rate for a downtime budget, and what an announcement to
// thousands of connections answers at once.
const tapQueue = 30000

// apiStartGuest takes a guest under care: one of our images is started, one
// that runs already (with qmp) is adopted.
func (a *Agent) apiStartGuest(r *http.Request) (any, error) {
	var d config.Description
	if err := peer.DecodeKnown(r, &d); err != nil {
		return nil, err
	}
	if err := d.Check(); err != nil {
		return nil, err
	}
	if err := a.guests.Readable(d.Name); err != nil {
		return nil, err
	}
	if _, err := a.guests.Find(d.Name); err == nil {
		return nil, &migration.Problem{Code: migration.CodeUsage, Text: fmt.Sprintf("guest %s: under care on this host already", d.Name)}
	}
	if err := cmp.Or(a.journalLeft(d.Name, ""), a.namesakeHere(d)); err != nil { // the one of that name may run elsewhere, or does
		return nil, err
	}
	a.actors.Add(1) // an agent that ends meanwhile undoes that first
	defer a.actors.Done()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(a.ctx, cancel)()
	var g *guests.Guest
	var err error
	if d.QMP != "" {
		g, err = a.adopt(ctx, d)
	} else if err = d.CheckStarted(a.config.ImageNames()); err == nil {
		g, err = a.startGuest(ctx, d)
	}
	if err != nil {
		return nil, err
	}
	if err := a.guests.Save(g); err != nil {
		return nil, errors.Join(err, a.letGo(g))
	}
	return g.Held(), nil
}

// startGuest boots a guest of one of our images with a free address. On error nothing
// of it is left; nor is of one whose agent is killed before it is under care, see endHalfStarted.
func (a *Agent) startGuest(ctx context.Context, d config.Description) (_ *guests.Guest, err error) {
	g := guests.New(care.Begun(d, a.guestDir(d.Name, "1")), nil)
	if pid, lives, err := qemu.LivesIn(g.Held().Dir); err != nil {
		return nil, fmt.Errorf("start guest %s: %w", d.Name, err)
	} else if lives { // by whose sockets alone it is reached: they would go with what is undone
		return nil, &migration.Problem{Code: migration.CodeBusy, Text: fmt.Sprintf(
			"guest %s: QEMU %d runs in %s and is not under care: it may run a guest of that name; see `godwit doctor`, and end it first", d.Name, pid, g.Held().Dir)}
	}
	if err := a.expectNew(g); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			a.forgetStart(g)
		}
	}()
	if err := a.openTaps(g); err != nil { // a tap may change the bridge's MAC, by which the LAN is asked
		return nil, err
	}
	addressed, callOff := a.beginAddresses(ctx, g)
	defer callOff()
	spec, err := a.spec(g, false)
	if err != nil {
		return nil, err
	}
	if err := a.guests.Begin(g); err != nil {
		return nil, fmt.Errorf("start guest %s: %w", d.Name, err)
	}
	machine, err := qemu.Start(ctx, spec)
	if err != nil { // and there is none, which dismantle asks
		return nil, fmt.Errorf("start guest %s: %w", d.Name, err)
	}
	g.RunsIn(machine)
	if err := addressed(); err != nil {
		return nil, err
	}
	if err := a.configureFirst(ctx, g); err != nil {
		return nil, fmt.Errorf("start guest %s: %w", d.Name, err)
	}
	if len(d.Run) > 0 {
		if err := g.Channel().Run(ctx, d.Run...); err != nil {
			return nil, fmt.Errorf("start guest %s: workloads: %w", d.Name, err)
		}
	}
	return g, nil
}

// forgetStart ends what was made for a guest that is not under care yet, and lets go of its name when nothing says any
// more that it is being started.
func (a *Agent) forgetStart(g *guests.Guest) {
	a.dismantle(g)
	if err := a.guests.Forget(g); err != nil {
		a.log.Warn("forget guest", "guest", g.Name(), "error", err)
	}
	a.guests.Settled(g)
}

// endHalfStarted ends a guest that an agent was killed in starting; false: it is none. Who asked for it was told
// nothing, and it may lack its addresses. Its QEMU may not listen yet.
func (a *Agent) endHalfStarted(h care.Held) bool {
	if !h.Starting {
		return false
	}
	a.log.Warn("guest ended: an agent was killed as it started it; start it again", "guest", h.Description.Name)
	if err := qemu.KillSilent(h.Dir, ""); err != nil {
		a.log.Error("end qemu; what was written down of its guest is kept", "guest", h.Description.Name, "error", err)
		return true
	}
	a.forgetStart(guests.New(h, nil))
	return true
}

// configureFirst gives a guest that boots its first addresses.
func (a *Agent) configureFirst(ctx context.Context, g *guests.Guest) error {
	if g.Held().Description.Silent() {
		return a.grantFirst(ctx, g)
	}
	c, err := g.Reach(ctx, limits.Boot)
	if err != nil {
		return fmt.Errorf("no answer on its channel: %w", err)
	}
	_, err = c.Configure(ctx, handed.Configure(g.Held(), a.config.Network, 0, g.Held().Addresses, 0, true))
	return err
}

// beginAddresses chooses a new guest's addresses while it begins to boot: the LAN is asked for 300 ms who has them.
// await waits until they are chosen, or none are; after callOff nothing is chosen any more.
func (a *Agent) beginAddresses(ctx context.Context, g *guests.Guest) (await func() error, callOff func()) {
	ctx, cancel := context.WithCancel(ctx)
	chosen := make(chan error, 1)
	over := make(chan struct{})
	go func() {
		defer close(over)
		chosen <- a.chooseAddresses(ctx, g)
	}()
	return func() error { return <-chosen }, func() {
		cancel()
		<-over
	}
}

// chooseAddresses gives a new guest free addresses.
func (a *Agent) chooseAddresses(ctx context.Context, g *guests.Guest) error {
	addrs, err := a.book.Free(ctx, netip.Addr{}, g.Name(), nil)
	if err != nil {
		return err
	}
	a.guests.GiveAddresses(g, addrs)
	a.book.Release(g.Name(), netip.Addr{})
	return nil
}

// guestDir is where a guest's sockets and logs are; each epoch has its own.
func (a *Agent) guestDir(name, epoch string) string {
	return filepath.Join(a.config.Run, "guests", name+"-"+epoch)
}

// openTaps makes one tap for each NIC, named by the guest's number.
func (a *Agent) openTaps(g *guests.Guest) error {
	g.Remember(func(h *care.Held) { h.Taps = nil }) // an abort may write it down meanwhile
	for i := range g.Held().Description.NICs {
		name := guests.TapName(g.Held().Number, i)
		tap, err := netstate.OpenTap(name, tapQueue, a.config.Network.Bridge, a.config.Network.MTU)
		if err != nil {
			return fmt.Errorf("guest %s: %w", g.Name(), err)
		}
		g.AddTap(name, tap)
	}
	return nil
}

// spec is how QEMU is to run the guest here.
func (a *Agent) spec(g *guests.Guest, incoming bool) (qemu.Spec, error) {
	d := g.Held().Description
	image := a.config.ImageOf(d.Image)
	if image.Kernel == "" && d.Image != "" && d.Image != config.TinyImage {
		return qemu.Spec{}, d.Wrong("image %q is unknown on host %s; it has: %s", d.Image, a.config.Host, lists.OrNone(a.config.ImageNames()))
	}
	if image.Kernel == "" {
		return qemu.Spec{}, &migration.Problem{Code: migration.CodeGuest, Text: fmt.Sprintf(
			"guest %s: host %s has no guest image; run `make build` and name it in the agent's configuration", d.Name, a.config.Host)}
	}
	spec := qemu.Spec{
		Name: d.Name, Memory: d.Memory, VCPUs: max(d.VCPUs, 1), Dir: g.Held().Dir, Incoming: incoming,
		Kernel: image.Kernel, Initrd: image.Initrd, Cmdline: image.Cmdline, Root: image.Root, Disks: d.Disks, Port: line.Port(d),
	}
	for i, n := range d.NICs {
		spec.NICs = append(spec.NICs, qemu.NIC{ID: fmt.Sprintf("net%d", i), MAC: n.MAC, Tap: g.Taps()[i]})
	}
	return spec, nil
}

// attach finds a guest again that an earlier agent had under care. In one that stands still nobody
// answers: its channel is reached when it is needed.
func (a *Agent) attach(ctx context.Context, h care.Held) (*guests.Guest, error) {
	machine, err := described.Attach(ctx, h)
	if err != nil {
		return nil, err
	}
	g := guests.New(h, machine)
	g.FindTaps(a.log)
	if h.Description.Silent() {
		g.SpeakBy(a.fromOutside(g))
	} else if status, err := machine.Status(ctx); err == nil && status == vm.Running && g.HasChannel() {
		if _, err := g.Reach(ctx, limits.Adopt); err != nil {
			a.log.Warn("guest's channel is silent", "guest", g.Name(), "error", err)
		}
	}
	return g, nil
}

// apiForgetGuest ends the care of a guest where it was adopted; the guest runs on.
func (a *Agent) apiForgetGuest(r *http.Request) (any, error) {
	g, err := a.guests.Find(r.PathValue("name"))
	if err != nil {
		return nil, err
	}
	wrong := func(why string) error {
		return &migration.Problem{Code: migration.CodeUsage, Text: "forget guest " + g.Name() + ": " + why}
	}
	if g.Held().Description.QMP == "" {
		return nil, wrong("the agent started it here, also if it was adopted and has come back, and nobody else cares for it; power it off to end that, its disks stay")
	}
	if err := a.guests.TakeHere(g, "forget"); err != nil {
		return nil, err
	}
	defer g.Drop("forget")
	if len(a.detours.List(g.Name())) > 0 {
		return nil, wrong("packets of its former addresses still take a tunnel here; wait for the end of its lease")
	}
	return nil, a.letGo(g)
}

// letGo ends the care of a guest: one that we started ends, one that was adopted
// here goes on.
func (a *Agent) letGo(g *guests.Guest) error {
	if g.Held().Description.QMP == "" {
		a.discard(g)
		return a.guests.Forget(g)
	}
	g.CloseFiles()
	a.guests.ExpectAgain(g) // who gets its name has this directory
	defer a.guests.Settled(g)
	if err := a.guests.Forget(g); err != nil {
		return err
	}
	os.RemoveAll(g.Held().Dir) //nolint:errcheck // last: a guest that is remembered without it could not be moved
	return nil
}

// stopGuest ends a guest and removes what was made for it.
func (a *Agent) stopGuest(ctx context.Context, g *guests.Guest) error {
	var err error
	if g.Machine() != nil {
		err = g.Machine().Quit(ctx)
	}
	for _, d := range a.detours.List(g.Name()) {
		err = errors.Join(err, a.detours.Remove(ctx, d.ID))
	}
	a.discard(g)
	return errors.Join(err, a.guests.Forget(g))
}

// discard ends what was made for a guest here, without a word to anybody, and lets go of its name.
func (a *Agent) discard(g *guests.Guest) {
	a.dismantle(g)
	a.guests.Settled(g)
}

// dismantle is discard for a guest whose name nobody else is to have yet.
func (a *Agent) dismantle(g *guests.Guest) {
	if g.Machine() != nil {
		if err := limits.EndGuest.Do(context.Background(), g.Machine().Quit); err != nil {
			a.log.Error("end qemu", "guest", g.Name(), "error", err)
		}
	}
	g.CloseFiles()
	logs.Keep(g.Held().Dir, a.config.StatePath("logs"), a.log)
	if err := os.RemoveAll(g.Held().Dir); err != nil {
		a.log.Warn("remove guest's directory", "guest", g.Name(), "error", err)
	}
}
