package qemu

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"godwit/vm"
	"godwit/vm/qemu/qmp"
)

// Facts asks QEMU what it runs.
func (p *Process) Facts(ctx context.Context) (vm.Facts, error) {
	f := vm.Facts{Version: p.Version().String(), Hold: p.hold(), Unit: unitOf(p.pid)}
	var name struct {
		Name string `json:"name"`
	}
	var kvm struct {
		Enabled bool `json:"enabled"`
	}
	var memory struct {
		Base    int64 `json:"base-memory"`
		Plugged int64 `json:"plugged-memory"`
	}
	var migration struct {
		Blocked []string `json:"blocked-reasons"`
	}
	for _, q := range []struct {
		command string
		out     any
	}{
		{"query-name", &name}, {"query-kvm", &kvm},
		{"query-memory-size-summary", &memory}, {"query-migrate", &migration},
	} {
		if err := p.qmp.Do(ctx, q.command, nil, q.out); err != nil {
			return vm.Facts{}, err
		}
	}
	f.Name, f.Blockers = name.Name, migration.Blocked
	f.Base, f.Memory = memory.Base, memory.Base+memory.Plugged
	f.Accel = "tcg"
	if kvm.Enabled {
		f.Accel = "kvm"
	}
	var err error
	if f.Machine, err = p.machineType(ctx); err != nil {
		return vm.Facts{}, err
	}
	if err := p.processors(ctx, &f); err != nil {
		return vm.Facts{}, err
	}
	if f.PageSize, err = p.pageSize(ctx); err != nil {
		return vm.Facts{}, err
	}
	announces, err := p.anyHas(ctx, guestAnnounces)
	if err != nil {
		return vm.Facts{}, err
	}
	f.Quiet = !announces
	if f.Hints, err = p.anyHas(ctx, freePageHint); err != nil {
		return vm.Facts{}, err
	}
	if f.Apart, err = apart(p.pid); err != nil {
		return vm.Facts{}, err
	}
	if f.Closed, err = p.closed(ctx, f.Apart); err != nil {
		return vm.Facts{}, err
	}
	if f.Disks, err = p.disks(ctx); err != nil {
		return vm.Facts{}, err
	}
	f.Shared, err = p.shared(ctx)
	return f, err
}

// freePageHint is the property of a balloon by which the guest tells QEMU, while that copies, which of its pages are free.
const freePageHint = "free-page-hint"

// pageSize is the largest of any block of memory; 0 where QEMU refuses to say.
func (p *Process) pageSize(ctx context.Context) (int64, error) {
	text, err := ramTable(ctx, p.qmp)
	var refused *qmp.Error
	if errors.As(err, &refused) {
		return 0, nil
	}
	return largestPage(text), err
}

func (p *Process) typeOf(ctx context.Context, path string) (string, error) {
	var name string
	err := p.property(ctx, path, "type", &name)
	return name, err
}

// property reads one of an object of QEMU's object model.
func (p *Process) property(ctx context.Context, path, name string, out any) error {
	return p.qmp.Do(ctx, "qom-get", map[string]string{"path": path, "property": name}, out)
}

func (p *Process) machineType(ctx context.Context) (string, error) {
	name, err := p.typeOf(ctx, "/machine")
	return strings.TrimSuffix(name, "-machine"), err
}

func (p *Process) disks(ctx context.Context) ([]vm.Disk, error) {
	inserted, err := p.inserted(ctx)
	if err != nil {
		return nil, err
	}
	var disks []vm.Disk
	for _, b := range inserted {
		if b.Node == rootNode && b.ReadOnly {
			continue // the root is at both hosts: it does not move
		}
		disks = append(disks, vm.Disk{ID: b.id, Path: b.File, Format: b.Driver, Size: b.Image.VirtualSize, ReadOnly: b.ReadOnly})
	}
	return disks, nil
}

// shared are those of the disks that the guest may write, and others, too, as their devices say (share-rw).
func (p *Process) shared(ctx context.Context) ([]string, error) {
	inserted, err := p.inserted(ctx)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, m := range inserted {
		if m.ReadOnly || m.device == "" {
			continue
		}
		var on bool
		err := p.property(ctx, m.device, "share-rw", &on)
		var without *qmp.Error
		if err != nil && !errors.As(err, &without) { // such as flash, which is no disk
			return nil, err
		}
		if on {
			ids = append(ids, m.id)
		}
	}
	return ids, nil
}

// medium is what a device of the guest reads, as query-block tells it.
type medium struct {
	id       string // of the disk: the drive's, or its node's name where it is of none
	device   string // that has it, by its path in QEMU's object model; "": none has
	Node     string `json:"node-name"` // QEMU's own for a drive's, such as #block123
	File     string `json:"file"`
	Driver   string `json:"drv"`
	ReadOnly bool   `json:"ro"`
	Image    struct {
		VirtualSize int64 `json:"virtual-size"`
	} `json:"image"`
}

func (p *Process) inserted(ctx context.Context) ([]medium, error) {
	var devices []struct {
		Drive    string  `json:"device"`
		Qdev     string  `json:"qdev"` // the id of what has it, or its path where it has none, as has what is made for usb-storage
		Inserted *medium `json:"inserted"`
	}
	if err := p.qmp.Do(ctx, "query-block", nil, &devices); err != nil {
		return nil, err
	}
	var found []medium
	for _, d := range devices {
		if d.Inserted != nil {
			d.Inserted.id = cmp.Or(d.Drive, d.Inserted.Node)
			if d.Inserted.device = d.Qdev; d.Qdev != "" && !strings.HasPrefix(d.Qdev, "/") {
				d.Inserted.device = named + "/" + d.Qdev
			}
			found = append(found, *d.Inserted)
		}
	}
	return found, nil
}
