package vm

import "context"

// Mirror copies a disk of a running guest to another host, and every later write with it,
// until it is finished or dropped.
type Mirror struct {
	Disk   string // the disk's ID
	Socket string // unix socket that leads to an NBD server; its export has the disk's ID
}

// MirrorState is how far a mirror is.
type MirrorState struct {
	Disk      string
	Remaining int64 // bytes known to differ from the copy
	Done      int64 // bytes copied, those that were written again included
	Ready     bool  // all was copied once; what is written follows
	Ended     bool  // by itself, which a mirror never should: Error says why
	Error     string
}

// Blocks is what a hypervisor that can move disks has beside Machine. What its methods
// make is found again by its name, so all of them also serve one who attached later.
type Blocks interface {
	// StartMirror begins to copy. On error nothing of it is left, and the disk is as it was.
	// The guest's flushes don't reach the copy: it is to be synced before the disk goes.
	StartMirror(ctx context.Context, m Mirror) error
	// Mirrors returns the state of every mirror of this machine, in the order of their disks' IDs.
	Mirrors(ctx context.Context) ([]MirrorState, error)
	// BlockWrites makes a mirror's guest wait with each write until the copy has it, so
	// that the mirror catches up whatever the guest writes. It cannot be taken back.
	// An error means that the hypervisor cannot (QEMU before 8.2).
	BlockWrites(ctx context.Context, disk string) error
	// FinishMirrors ends every mirror of a guest that is stopped. On success each copy
	// holds what its disk holds, and nothing of the mirrors is left; so also without any.
	// On error some may be there still: drop them.
	FinishMirrors(ctx context.Context) error
	// DropMirrors ends every mirror at once. On success nothing of them is left and the
	// disks are as they would be without; what the copies hold is worth nothing.
	DropMirrors(ctx context.Context) error

	// ExportDisks serves disks of a waiting machine by NBD on a unix socket, writable,
	// each under its ID.
	ExportDisks(ctx context.Context, socket string, disks []string) error
	// EndExports ends that. On success the disks are the guest's alone; so also without any.
	EndExports(ctx context.Context) error
}
