// Package leftover says what Godwit has on a host, and what of it belongs to nobody.
//
// It needs no memory and no agent: kernel state is found by its marks, processes by
// their runtime directories, the rest by its place below the agent's STATE and RUN.
// What a thing belongs to is read from STATE: guests under care, detours, journals of
// migrations under way. Call it in the host's network namespace.
package leftover

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"godwit/agent/config"
)

// Kind of a thing.
type Kind string

// The kinds.
const (
	NetworkState Kind = "network state" // of one guest: routes, rules, neighbour and bridge entries
	Stray        Kind = "stray entry"   // marked as ours, but of no guest's state
	Tap          Kind = "tap"
	Tunnel       Kind = "tunnel" // device, process and files
	Inlet        Kind = "inlet"  // process that brings a guest the pages which it misses (post-copy)
	Guest        Kind = "guest"  // a runtime directory, with or without its QEMU
	Disk         Kind = "disk"
	Journal      Kind = "journal"
	File         Kind = "file"        // half written
	Memory       Kind = "kept memory" // of a guest that left, for its return
	Multipath    Kind = "MPTCP"       // endpoints and limits of this host, for memory
	Untold       Kind = "word"        // to a host that is not told any more
	Ended        Kind = "ended guest" // what one was, for people
)

// A Thing is one piece of what Godwit made on a host.
type Thing struct {
	Kind      Kind   `json:"kind"`
	Name      string `json:"name"`
	Guest     string `json:"guest,omitempty"`
	Migration string `json:"migration,omitempty"`
	// Owner is what needs it; "" where nothing does.
	Owner string `json:"owner,omitempty"`
	// Stays says why Clean leaves it alone although it has no owner.
	Stays string `json:"stays,omitempty"`

	remove  func(context.Context) error
	uncared bool // a QEMU that may run a guest
}

// Left says that Clean would remove it.
func (t Thing) Left() bool { return t.Owner == "" && t.Stays == "" }

func (t Thing) String() string {
	words := []string{string(t.Kind), t.Name}
	if t.Guest != "" {
		words = append(words, "of guest "+t.Guest)
	}
	if t.Migration != "" {
		words = append(words, "from migration "+t.Migration)
	}
	switch {
	case t.Owner != "":
		return strings.Join(words, " ") + ": belongs to " + t.Owner
	case t.Stays != "":
		return strings.Join(words, " ") + ": " + t.Stays
	}
	return strings.Join(words, " ") + ": belongs to nothing"
}

// Find lists what is there, and changes nothing. With an error the list is what
// could be seen.
func Find(ctx context.Context, c *config.Config) ([]Thing, error) {
	o, err := readOwners(c)
	if err != nil {
		return nil, err // who cannot read what is owned must call nothing left over
	}
	things := slices.Clone(o.written)
	var errs []error
	for _, look := range []func(context.Context, *config.Config, *owners) ([]Thing, error){kernel, taps, tunnels, inlets, directories, disks, memory, multipath, untolds, endedGuests, halfWritten} {
		found, err := look(ctx, c, o)
		things, errs = append(things, found...), append(errs, err)
	}
	return things, errors.Join(errs...)
}

// WithoutCare lists the QEMUs that agents here have begun, or received guests by, and that nobody has under care now:
// they may run their guests.
func WithoutCare(ctx context.Context, c *config.Config) ([]Thing, error) {
	o, err := readOwners(c)
	if err != nil {
		return nil, err
	}
	found, err := directories(ctx, c, o)
	return slices.DeleteFunc(found, func(t Thing) bool { return !t.uncared || t.Owner != "" }), err
}

// settle is how long a thing must belong to nothing before Clean takes it away from
// an agent that runs: what the agent is just making has its owner written down by then.
const settle = 2 * time.Second

// Clean removes what belongs to nothing, and returns what that was. Nothing that a
// guest, a lease or a migration under way uses is touched; a QEMU that may have run
// its guest never is.
func Clean(ctx context.Context, c *config.Config) (removed []Thing, err error) {
	things, err := Find(ctx, c)
	if err != nil {
		return nil, err
	}
	if agentRuns(c) {
		select {
		case <-time.After(settle):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		again, err := Find(ctx, c)
		if err != nil {
			return nil, err
		}
		things = slices.DeleteFunc(again, func(t Thing) bool {
			return !slices.ContainsFunc(things, func(o Thing) bool { return o.Left() && o.Kind == t.Kind && o.Name == t.Name })
		})
	}
	var errs []error
	for _, t := range things {
		if !t.Left() {
			continue
		}
		if err := t.remove(ctx); err != nil {
			errs = append(errs, fmt.Errorf("remove %s %s: %w", t.Kind, t.Name, err))
			continue
		}
		removed = append(removed, t)
	}
	return removed, errors.Join(errs...)
}

// agentRuns says whether an agent serves the run directory of c.
func agentRuns(c *config.Config) bool {
	f, err := os.OpenFile(filepath.Join(c.Run, "agent.lock"), os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil
}
