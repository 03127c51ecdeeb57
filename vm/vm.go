// Package vm says what a migration needs from a hypervisor, and no more.
//
// A Machine is one guest in one hypervisor process on this host. The process lives
// without the agent: closing a Machine lets go of it and leaves the guest as it is.
//
// Who may pause and resume: only the caller. No method here resumes a guest as a side
// effect, and Stop proves that the guest was paused by us, because a hypervisor that
// did the stopping would start the guest again by itself when its migration fails
// (QEMU, migration_iteration_finish).
package vm

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrUnasked says that a guest was not asked to stop: where it stands still, it was not the caller who paused it.
var ErrUnasked = errors.New("it was not asked to stop")

// StoodError says that a guest stood still before it was to be stopped, and how: somebody else paused it, or its
// hypervisor did, as on a full disk. It is an ErrUnasked.
type StoodError struct{ Status Status }

func (e StoodError) Error() string {
	return fmt.Sprintf("stop guest: it stood still already: it is %s", e.Status)
}

func (StoodError) Unwrap() error { return ErrUnasked }

// ThrottleRuns is for how long a throttled guest runs between two pauses: QEMU's
// CPU_THROTTLE_TIMESLICE_NS. Its pauses are longer the further it is throttled.
const ThrottleRuns = 10 * time.Millisecond

// Machine is a guest on this host. Every method that waits takes a context and is
// bounded also without a deadline in it. Methods may be called concurrently.
type Machine interface {
	// Facts returns what must agree between the two hosts of a migration.
	Facts(ctx context.Context) (Facts, error)

	// Status returns the run state as the hypervisor has it now.
	Status(ctx context.Context) (Status, error)
	// Stop pauses the guest. On success it does not run, and no failure of a migration
	// resumes it. A held migration finishes from then on. Call it before the transfer
	// allows the switchover. On error the guest may run or be paused: ask Status. It is
	// a StoodError where the guest did not run before, and an ErrUnasked wherever it was not asked to.
	Stop(ctx context.Context) error
	// Cont lets the guest run. On success the state is Running.
	Cont(ctx context.Context) error
	// Announce has the guest, where it can, or the hypervisor for it, tell its LAN where it is
	// now. A guest that came by a migration has told it once: that takes time which its clients wait for.
	Announce(ctx context.Context) error
	// Quit ends the process, by force when it doesn't end by itself. On success no
	// process is left and its sockets are removed; its logs stay.
	Quit(ctx context.Context) error

	// Events returns what happens from now on, until ctx ends or the machine is gone;
	// then the channel is closed. A reader that is too slow loses the oldest events.
	Events(ctx context.Context) <-chan Event
	// Done is closed when the process has exited.
	Done() <-chan struct{}
	// Exit says how the process ended; its zero value until Done is closed.
	Exit() Exit
	// PID is the process's id.
	PID() int
	// GuestChannel is the path of the unix socket that leads into the guest.
	GuestChannel() string

	// PrepareIncoming makes a machine that was started to wait for a guest listen on
	// opts.URI. On success a connection to it is accepted.
	PrepareIncoming(ctx context.Context, opts MigrateOptions) error
	// Migrate starts sending the guest to opts.URI and returns when it has started.
	// On error nothing was started and the run state is as before.
	Migrate(ctx context.Context, opts MigrateOptions) error
	// ReleaseSwitchover lets a migration that was held (HoldSwitchover) finish; with any other
	// it does nothing. Call it after Stop. It also serves a machine that was attached to when
	// its migration was under way.
	ReleaseSwitchover(ctx context.Context) error
	// SetBandwidth changes the sending rate of a migration, in bytes per second;
	// 0 is the fastest there is. A held QEMU with nothing left to send looks for dirty
	// pages thousands of times a second, which costs a processor and, with multifd, some
	// 20 MB/s: where a hold may last, lower the rate to a little more than the dirty rate,
	// and raise it 100 ms (QEMU's window) before Stop.
	SetBandwidth(ctx context.Context, bytesPerSecond int64) error
	// Throttle makes the guest's processors stand still for percent of the time, 1 … 99, while
	// it is sent by a migration with MigrateOptions.Throttles: they run for ThrottleRuns, and
	// pause. It may be called again, with more or less. It counts from one of the next two
	// rounds that begin a second after the one before; Progress says how far it is. It ends
	// with the migration, however that ends, and with the hypervisor's word for it: no agent
	// is needed for that.
	Throttle(ctx context.Context, percent int) error
	// Courtesy makes the threads that copy memory yield to the guests' processors,
	// or not any more. It returns how many there are.
	Courtesy(on bool) (int, error)
	// DirtyRate measures how much memory the guest rewrites, in bytes per second: what
	// differs after over, by a sample of its pages. A page that is written a hundred times
	// counts once. It takes that long; a hypervisor that measures by the second takes a second,
	// or as many whole ones as over has.
	DirtyRate(ctx context.Context, over time.Duration) (int64, error)
	// Progress returns how far the migration is, at either end.
	Progress(ctx context.Context) (Progress, error)
	// AwaitMigration waits for the migration's end, at either end. The error is nil
	// only when Progress.Status is Completed.
	AwaitMigration(ctx context.Context) (Progress, error)
	// CancelMigration ends an outgoing migration. On success none is under way, the run
	// state is what it was, and another one can be started.
	CancelMigration(ctx context.Context) error

	// Close lets go of the process and leaves it running.
	Close() error
}
