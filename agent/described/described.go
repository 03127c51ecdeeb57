// Package described sees to the QEMUs of guests that people describe, where no agent made up their command line: one
// that somebody else started is compared with its description as it is adopted, one that waits for a guest to come is
// started by the description's own command, and both are found again. What a description should say of a QEMU that runs
// is package describe's.
package described

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"godwit/agent/capable"
	"godwit/agent/config"
	"godwit/internal/lists"
	"godwit/migration"
	"godwit/netstate"
	"godwit/netstate/hold"
	"godwit/vm"
	"godwit/vm/qemu"
)

// Compare holds a description against what its guest's QEMU has, and says how many processors that has where it did
// not. taps are descriptors of the taps of its NICs, which are ports of bridge, in their order; on error none is open.
func Compare(ctx context.Context, d *config.Description, machine *qemu.Process, bridge string) (taps []*os.File, err error) {
	facts, err := machine.Facts(ctx)
	if err != nil {
		return nil, err
	}
	cards, err := machine.Cards(ctx)
	if err != nil {
		return nil, err
	}
	if err := unlike(*d, facts, cards); err != nil {
		return nil, err
	}
	d.VCPUs = facts.VCPUs
	defer func() {
		if err != nil {
			for _, tap := range taps {
				tap.Close()
			}
			taps = nil
		}
	}()
	for _, n := range d.NICs {
		if err := usable(n, cards); err != nil {
			return taps, err
		}
		of, err := netstate.BridgeOf(n.Tap)
		if err != nil {
			return taps, err
		}
		if of != bridge {
			return taps, fmt.Errorf("tap %s is a port of %s; make it one of %s", n.Tap, lists.OrNone(strings.Fields(of)), bridge)
		}
		tap, err := hold.Recover(machine.PID(), n.Tap)
		if err != nil {
			return taps, err
		}
		taps = append(taps, tap)
	}
	return taps, nil
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

// otherFiles says which described disk is not the file that QEMU has for it. What QEMU names otherwise than by a path
// that leads somewhere here, as by its own folder or among options, is not compared.
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

// usable says why QEMU has not got a NIC of the description, or why it is not to be moved.
func usable(n config.NIC, cards []qemu.Card) error {
	i := slices.IndexFunc(cards, func(c qemu.Card) bool { return strings.EqualFold(c.MAC, n.MAC) })
	if i < 0 {
		var macs []string
		for _, c := range cards {
			macs = append(macs, c.MAC)
		}
		return fmt.Errorf("its QEMU has no NIC with the MAC %s (it has: %s)", n.MAC, lists.OrNone(macs))
	}
	c := cards[i]
	if c.Tap != "" && c.Tap != n.Tap {
		return fmt.Errorf("its NIC %s is connected to tap %s, the description says %s", n.MAC, c.Tap, n.Tap)
	}
	if c.Queues > 1 { // where it comes to it has one pair, and QEMU says so when the guest stands still
		return fmt.Errorf("its NIC %s has %d pairs of queues, and one with more than one cannot be moved; start it with queues=1", n.MAC, c.Queues)
	}
	return nil
}
