package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"godwit/agent/capable"
	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/limits"
	"godwit/migration"
	"godwit/netstate"
	"godwit/netstate/hold"
	"godwit/vm"
	"godwit/vm/guest"
	"godwit/vm/qemu"
)

// adopt takes a guest under care that something else started. The guest is not
// touched; on error nothing has changed.
func (a *Agent) adopt(ctx context.Context, d config.Description) (_ *Guest, err error) {
	if err := d.CheckAdopted(); err != nil {
		return nil, err
	}
	if other := a.adoptedBy(d.QMP); other != "" {
		return nil, refuseAdoption(d, "guest %s is under care by the same QMP socket", other)
	}
	attach, cancel := limits.Adopt.On(ctx)
	defer cancel()
	machine, err := qemu.AttachSocket(attach, d.QMP, 0, d.Channel)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, refuseAdoption(d, "QEMU does not answer on %s; give it a QMP socket that nobody else uses", d.QMP)
	case err != nil:
		return nil, refuseAdoption(d, "%v", err)
	}
	g := &Guest{Machine: machine, Held: care.Held{Description: d, Epoch: 1, Table: guest.FirstTable}}
	defer func() {
		if err != nil {
			a.guests.settled(g)
			g.closeFiles()
		}
	}()
	if err := a.expectNew(g); err != nil {
		return nil, err
	}
	if err := a.compare(ctx, g, machine); err != nil {
		return nil, err
	}
	if err := a.learn(ctx, g); err != nil {
		return nil, err
	}
	g.Held.Dir = a.guestDir(d.Name, "1")
	if err := os.MkdirAll(g.Held.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("adopt guest %s: %w", d.Name, err)
	}
	return g, nil
}

func refuseAdoption(d config.Description, format string, args ...any) error {
	return &migration.Problem{Code: migration.CodeGuest, Text: "adopt guest " + d.Name + ": " + fmt.Sprintf(format, args...)}
}

// adoptedBy names the guest that is under care by a QMP socket already.
func (a *Agent) adoptedBy(qmp string) string {
	for _, g := range a.guests.all() {
		if g.Held.Description.QMP == qmp {
			return g.name()
		}
	}
	return ""
}

// compare checks the description against what QEMU has, and gets its taps'
// descriptors.
func (a *Agent) compare(ctx context.Context, g *Guest, machine *qemu.Process) error {
	d := &g.Held.Description
	refuse := func(format string, args ...any) error { return refuseAdoption(*d, format, args...) }
	facts, err := machine.Facts(ctx)
	if err != nil {
		return refuse("%v", err)
	}
	cards, err := machine.Cards(ctx)
	if err != nil {
		return refuse("%v", err)
	}
	if err := unlike(*d, facts, cards); err != nil {
		return refuse("%v", err)
	}
	d.VCPUs = facts.VCPUs
	for _, n := range d.NICs {
		i := slices.IndexFunc(cards, func(c qemu.Card) bool { return strings.EqualFold(c.MAC, n.MAC) })
		if i < 0 {
			return refuse("its QEMU has no NIC with the MAC %s (it has: %s)", n.MAC, macsOf(cards))
		}
		if err := usable(cards[i], n); err != nil {
			return refuse("%v", err)
		}
		bridge, err := netstate.BridgeOf(n.Tap)
		if err != nil {
			return refuse("%v", err)
		}
		if bridge != a.config.Network.Bridge {
			return refuse("tap %s is a port of %s; make it one of %s", n.Tap, orNone(strings.Fields(bridge)), a.config.Network.Bridge)
		}
		tap, err := hold.Recover(machine.PID(), n.Tap)
		if err != nil {
			return refuse("%v", err)
		}
		g.Taps, g.Held.Taps = append(g.Taps, tap), append(g.Held.Taps, n.Tap)
	}
	return nil
}

// unlike says what of a guest its description has otherwise than QEMU.
func unlike(d config.Description, facts vm.Facts, cards []qemu.Card) error {
	switch {
	case facts.Base != d.Memory:
		return fmt.Errorf("its QEMU has %d bytes of memory, the description says %d; write %dMiB", facts.Base, d.Memory, facts.Base>>20)
	case d.VCPUs != 0 && facts.VCPUs != d.VCPUs:
		return fmt.Errorf("its QEMU has %d processors, the description says %d", facts.VCPUs, d.VCPUs)
	case len(cards) != len(d.NICs):
		return fmt.Errorf("its QEMU has %d NICs, the description names %d", len(cards), len(d.NICs))
	}
	say := func(_ migration.Code, format string, args ...any) error { return fmt.Errorf(format, args...) }
	return cmp.Or(capable.UnfitDisks(say, d.Disks, facts.Disks), otherFiles(d.Disks, facts.Disks))
}

// otherFiles says which described disk is not the file that QEMU has for it. What QEMU names otherwise than by a path that leads somewhere
// here, as by its own folder or among options, is not compared.
func otherFiles(described, found []vm.Disk) error {
	for _, d := range described {
		i := slices.IndexFunc(found, func(f vm.Disk) bool { return f.ID == d.ID })
		if i < 0 || d.Path == "" || d.Path == found[i].Path || !filepath.IsAbs(found[i].Path) {
			continue
		}
		has, err := os.Stat(found[i].Path)
		if err != nil {
			continue
		}
		if says, err := os.Stat(d.Path); err != nil || !filepath.IsAbs(d.Path) || !os.SameFile(has, says) {
			return fmt.Errorf("its disk %s is %s, the description says %s", d.ID, found[i].Path, d.Path)
		}
	}
	return nil
}

// usable says why a NIC cannot be that of the description, or not be moved.
func usable(c qemu.Card, n config.NIC) error {
	if c.Tap != "" && c.Tap != n.Tap {
		return fmt.Errorf("its NIC %s is connected to tap %s, the description says %s", n.MAC, c.Tap, n.Tap)
	}
	if c.Queues > 1 { // where it comes to it has one pair, and QEMU says so when the guest stands still
		return fmt.Errorf("its NIC %s has %d pairs of queues, and one with more than one cannot be moved; start it with queues=1", n.MAC, c.Queues)
	}
	return nil
}

func macsOf(cards []qemu.Card) string {
	var macs []string
	for _, c := range cards {
		macs = append(macs, c.MAC)
	}
	return orNone(macs)
}

// learn finds out which addresses the guest has, and which NIC is active.
func (a *Agent) learn(ctx context.Context, g *Guest) error {
	d := g.Held.Description
	refuse := func(format string, args ...any) error { return refuseAdoption(d, format, args...) }
	var held []migration.Address
	for _, addr := range d.Addresses {
		subnet := a.config.Network.SubnetOf(addr.Prefix.Addr())
		if addr.Home == "" {
			addr.Home = a.config.Host
		}
		if addr.Home == a.config.Host && !subnet.Contains(addr.Prefix.Addr()) {
			return refuse("address %s is not of this site's subnet; name its home", addr.Prefix)
		}
		if !addr.Gateway.IsValid() {
			addr.Gateway = a.config.Network.GatewayOf(addr.Prefix.Addr().Is4())
		}
		held = append(held, addr)
	}
	if d.Channel == "" {
		if len(held) == 0 {
			return refuse("without a guest channel its description must name its addresses")
		}
		if err := a.claim(g, held); err != nil {
			return err
		}
		if d.Silent() {
			g.speakBy(a.fromOutside(g))
		}
		return nil
	}
	if _, err := g.reach(ctx, limits.Adopt); err != nil {
		return refuse("no answer on its channel %s: %v", d.Channel, err)
	}
	info, err := g.info(ctx)
	if err != nil {
		return refuse("%v", err)
	}
	owned := a.owned(d, info)
	if g.Held.Active, err = activeNIC(d, owned); err != nil {
		return err
	}
	if len(d.Addresses) == 0 {
		for _, p := range owned[g.Held.Active] {
			held = append(held, migration.Address{Prefix: p, Gateway: a.config.Network.GatewayOf(p.Addr().Is4()), Home: a.config.Host})
		}
	}
	if len(held) == 0 {
		return refuse("it has no address of this site's subnet; name its addresses in the description")
	}
	return a.claim(g, held)
}

// startWaiting starts a guest by its description's own command, waiting for its
// memory. Words in braces are replaced, see docs/agent.md; the taps are handed over
// as descriptors, because a tap has one queue and the agent keeps it open.
func startWaiting(ctx context.Context, g *Guest) (*qemu.Process, error) {
	d := g.Held.Description
	if err := os.MkdirAll(g.Held.Dir, 0o700); err != nil {
		return nil, err
	}
	qmp, channel := commandSockets(g.Held.Dir, d)
	words := []string{
		"{dir}", g.Held.Dir, "{qmp}", qmp, "{channel}", channel, "{name}", d.Name,
		"{memory}", fmt.Sprintf("%dK", d.Memory>>10), "{vcpus}", fmt.Sprint(max(d.VCPUs, 1)),
	}
	const firstFD = 3 // os/exec's ExtraFiles begin there
	for i, tap := range g.Held.Taps {
		words = append(words, fmt.Sprintf("{fd%d}", i), fmt.Sprint(firstFD+i), fmt.Sprintf("{tap%d}", i), tap)
	}
	for i, disk := range d.Disks {
		words = append(words, fmt.Sprintf("{disk%d}", i), disk.Path)
	}
	replace := strings.NewReplacer(words...)
	command := qemu.Command{Files: g.Taps, Dir: g.Held.Dir, QMP: qmp, Guest: channel}
	for _, w := range d.Start {
		command.Words = append(command.Words, replace.Replace(w))
	}
	machine, err := qemu.StartCommand(ctx, command)
	if err != nil {
		return nil, fmt.Errorf("its start command: %w", err)
	}
	for i, tap := range g.Held.Taps {
		held, err := hold.Recover(machine.PID(), tap)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("its start command: QEMU does not have tap %s; use fd={fd%d}", tap, i), machine.Quit(ctx))
		}
		held.Close()
	}
	if err := allCards(ctx, machine, d); err != nil {
		return nil, errors.Join(fmt.Errorf("its start command: %w", err), machine.Quit(ctx))
	}
	return machine, nil
}

// allCards makes sure that the guest finds each of its NICs where it comes to: QEMU would say
// so only when it has all of the memory, and the guest stands still.
func allCards(ctx context.Context, machine *qemu.Process, d config.Description) error {
	cards, err := machine.Cards(ctx)
	if err != nil {
		return err
	}
	if missing := lackingCards(d, cards); len(missing) > 0 {
		return fmt.Errorf("QEMU has no NIC %s there; add it to the command, on a tap of its own", missing[0])
	}
	return nil
}

// commandSockets are those of a guest that is started by its own command in dir;
// channel is "" where the command has none.
func commandSockets(dir string, d config.Description) (qmp, channel string) {
	if slices.ContainsFunc(d.Start, func(w string) bool { return strings.Contains(w, "{channel}") }) {
		channel = filepath.Join(dir, "guest.sock")
	}
	return filepath.Join(dir, "qmp.sock"), channel
}

// attachMachine finds the QEMU of a guest again: where it was adopted by the socket
// of its description, where it came to by that of its start command, and else by
// its directory. The error is qemu.ErrGone where none is.
func attachMachine(ctx context.Context, h care.Held) (*qemu.Process, error) {
	ctx, cancel := limits.Adopt.On(ctx)
	defer cancel()
	d := h.Description
	switch {
	case d.QMP != "":
		machine, err := qemu.AttachSocket(ctx, d.QMP, 0, d.Channel)
		if err != nil {
			return nil, err
		}
		cards, err := machine.Cards(ctx)
		if err == nil {
			err = sameCards(d, cards)
		}
		if err != nil {
			machine.Close()
			return nil, err
		}
		return machine, nil
	case len(d.Start) > 0:
		qmp, channel := commandSockets(h.Dir, d)
		return qemu.AttachSocket(ctx, qmp, 0, channel)
	}
	return qemu.Attach(ctx, h.Dir)
}

// sameCards makes sure that it is no other guest that now listens on the socket of
// an adopted one. The error is qemu.ErrGone only where another is seen there: its owner may have
// taken a NIC from it.
func sameCards(d config.Description, cards []qemu.Card) error {
	lacks := lackingCards(d, cards)
	switch {
	case len(lacks) < len(d.NICs):
		return nil
	case len(cards) == 0:
		return fmt.Errorf("the QEMU on %s has no NIC to know the guest by", d.QMP)
	}
	return fmt.Errorf("%w: the QEMU on %s has no NIC %s", qemu.ErrGone, d.QMP, orNone(lacks))
}

// lackingCards are the MACs of NICs of the description that QEMU has not got.
func lackingCards(d config.Description, cards []qemu.Card) (macs []string) {
	for _, n := range d.NICs {
		if !slices.ContainsFunc(cards, func(c qemu.Card) bool { return strings.EqualFold(c.MAC, n.MAC) }) {
			macs = append(macs, n.MAC)
		}
	}
	return macs
}
