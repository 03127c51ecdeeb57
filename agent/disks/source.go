// Package disks copies the disks of a guest to another host while it runs: by mirrors of its QEMU, whose streams go by
// lanes over every path (package lanes), one way (package pipe) for each disk. A Source sends them; at the destination
// an Intake hands them to the QEMU that waits, or writes the file where that may only read the disk. Sizes are in
// bytes, rates in bytes per second. What cannot go on is a migration.Problem that names the guest, and is undone by its
// caller: the disks at the source are as if nothing had been tried, when their mirrors are dropped.
package disks

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"godwit/agent/peer"
	"godwit/migration"
	"godwit/policy"
	"godwit/transfer"
	"godwit/transfer/nbd"
	"godwit/transfer/pace"
	"godwit/transfer/pipe"
	"godwit/vm"
)

// Config says what a Source sends, and how.
type Config struct {
	Life     context.Context //nolint:containedctx // of the ways, which outlive what opens them
	Plan     migration.Plan
	Disks    []vm.Disk // all that the guest has; ReadOnly as it has them
	Blocks   vm.Blocks // of its QEMU
	Socket   string    // by which that finds the ways
	Link     *peer.Link
	Paths    []peer.Path
	Key      []byte        // of the migration's lanes
	Limit    *pace.Share   // that all disks have together
	Patience time.Duration // with paths by which nothing moves
	Note     func(string)  // is told what a person should know
	Log      *slog.Logger

	Farewells *sync.WaitGroup // of ways that Cut takes from QEMU
}

// Source is a guest's disks on their way, from seed to switch. Of a guest without disks it is nil: what is called while
// memory is copied has nothing to do then.
type Source struct {
	Config
	forward *transfer.Plain
	ways    []*pipe.Source         // below it, one a disk
	sent    map[string]*nbd.Digest // of read-only disks
	seeding policy.Seeding
	blocked map[string]bool // disks to which the guest's writes wait for the copy from now on
	refused time.Time       // since when QEMU does not let them wait, and the copy does not follow; 0: it does
	at      time.Time
	left    int64 // bytes that differed at the last look
}

// Open opens the ways, and has the waiting QEMU grant every disk, within limits.AskDisks. On error there are none.
func Open(ctx context.Context, c Config) (*Source, error) {
	s := &Source{Config: c, seeding: policy.Seeding{Patience: c.Patience}}
	granted, err := s.ask(ctx)
	if err != nil {
		return nil, err
	}
	s.hear(granted)
	if s.forward, err = transfer.ListenNBD(c.Life, c.Socket, granted); err != nil {
		return nil, err
	}
	return s, nil
}

// Begin has QEMU copy every disk. On error some mirrors may be there: drop them.
func (s *Source) Begin(ctx context.Context) error {
	for _, d := range s.Disks {
		if err := s.beginMirror(ctx, vm.Mirror{Disk: d.ID, Socket: s.Socket}); err != nil {
			return err
		}
	}
	return nil
}

// Close ends the ways: what QEMU has under way on them fails, and each has time for a farewell, most of a second where
// nobody answers.
func (s *Source) Close() {
	if s != nil && s.forward != nil {
		s.forward.Close()
	}
}

// Cut takes the disks' ways from QEMU, which is done at once. The farewells on these ways, most of a second where
// nobody answers, are not waited for: the guest stands still.
func (s *Source) Cut() {
	if s != nil {
		s.Farewells.Go(s.Close)
	}
}

// Err is why a way has ended that should not have; nil: none has.
func (s *Source) Err() error {
	if s == nil || s.forward == nil {
		return nil
	}
	return s.forward.Err()
}

// Carried is what the disks' streams have carried towards the destination, bytes.
func (s *Source) Carried() int64 { return s.forward.Stats().Forward }

func (s *Source) problem(code migration.Code, format string, a ...any) error {
	return &migration.Problem{Code: code, Text: "migrate guest " + s.Plan.Guest + ": " + fmt.Sprintf(format, a...)}
}
