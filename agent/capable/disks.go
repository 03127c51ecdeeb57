package capable

import (
	"slices"

	"godwit/agent/config"
	"godwit/migration"
	"godwit/vm"
)

// UnfitDisks says why disks cannot move: what QEMU has and what the description names
// must be the same.
func UnfitDisks(refuse Refuse, described, found []vm.Disk) error {
	for _, d := range described {
		i := slices.IndexFunc(found, func(f vm.Disk) bool { return f.ID == d.ID })
		switch {
		case i < 0:
			return refuse(migration.CodeGuest, "QEMU has no disk %s that its description names; give the disk's node that name, or correct the description", d.ID)
		case found[i].Size <= 0 || found[i].Size > mostDisk:
			return refuse(migration.CodeGuest, "its disk %s has %d bytes; 1 byte to 16 TiB can be moved", d.ID, found[i].Size)
		}
	}
	for _, f := range found {
		if !slices.ContainsFunc(described, func(d vm.Disk) bool { return d.ID == f.ID }) {
			return refuse(migration.CodeGuest, "QEMU has a disk %s (%s) that its description does not name; name it, or take it away", f.ID, f.Path)
		}
	}
	return nil
}

// mostDisk bounds a disk's size, bytes.
const mostDisk = 1 << 44

// DiskSizes are the sizes of the described disks, in their order, as the source's QEMU
// has them. They come from the peer.
func DiskSizes(d config.Description, facts vm.Facts) (sizes []int64, sum int64, err error) {
	for _, disk := range d.Disks {
		i := slices.IndexFunc(facts.Disks, func(f vm.Disk) bool { return f.ID == disk.ID })
		if i < 0 || facts.Disks[i].Size <= 0 || facts.Disks[i].Size > mostDisk {
			return nil, 0, d.Wrong("the size of its disk %s is not known", disk.ID)
		}
		sizes = append(sizes, facts.Disks[i].Size)
		sum += facts.Disks[i].Size
	}
	return sizes, sum, nil
}
