package described

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/limits"
	"godwit/internal/lists"
	"godwit/netstate/hold"
	"godwit/vm/qemu"
)

// Start starts a guest by its description's own command, waiting for its
// memory. Words in braces are replaced, see docs/agent.md; the taps are handed over
// as descriptors, because a tap has one queue and the agent keeps it open.
func Start(ctx context.Context, h care.Held, taps []*os.File) (*qemu.Process, error) {
	d := h.Description
	if err := os.MkdirAll(h.Dir, 0o700); err != nil {
		return nil, err
	}
	qmp, channel := Sockets(h.Dir, d)
	words := []string{
		"{dir}", h.Dir, "{qmp}", qmp, "{channel}", channel, "{name}", d.Name,
		"{memory}", fmt.Sprintf("%dK", d.Memory>>10), "{vcpus}", fmt.Sprint(max(d.VCPUs, 1)),
	}
	const firstFD = 3 // os/exec's ExtraFiles begin there
	for i, tap := range h.Taps {
		words = append(words, fmt.Sprintf("{fd%d}", i), fmt.Sprint(firstFD+i), fmt.Sprintf("{tap%d}", i), tap)
	}
	for i, disk := range d.Disks {
		words = append(words, fmt.Sprintf("{disk%d}", i), disk.Path)
	}
	replace := strings.NewReplacer(words...)
	command := qemu.Command{Files: taps, Dir: h.Dir, QMP: qmp, Guest: channel}
	for _, w := range d.Start {
		command.Words = append(command.Words, replace.Replace(w))
	}
	machine, err := qemu.StartCommand(ctx, command)
	if err != nil {
		return nil, fmt.Errorf("its start command: %w", err)
	}
	for i, tap := range h.Taps {
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

// Sockets are those of a guest that is started by its own command in dir;
// channel is "" where the command has none.
func Sockets(dir string, d config.Description) (qmp, channel string) {
	if slices.ContainsFunc(d.Start, func(w string) bool { return strings.Contains(w, "{channel}") }) {
		channel = filepath.Join(dir, "guest.sock")
	}
	return filepath.Join(dir, "qmp.sock"), channel
}

// Attach finds the QEMU of a guest again: where it was adopted by the socket
// of its description, where it came to by that of its start command, and else by
// its directory. The error is qemu.ErrGone where none is.
func Attach(ctx context.Context, h care.Held) (*qemu.Process, error) {
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
		qmp, channel := Sockets(h.Dir, d)
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
	return fmt.Errorf("%w: the QEMU on %s has no NIC %s", qemu.ErrGone, d.QMP, lists.OrNone(lacks))
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
