package vm

import (
	"encoding/json"
	"slices"
	"time"
)

// Status is a guest's run state, by QEMU's names (qapi/run-state.json).
type Status string

// The run states that a migration meets. Others exist: compare, don't switch exhaustively.
const (
	Running       Status = "running"
	Paused        Status = "paused"
	Incoming      Status = "inmigrate"      // waits for a guest, or is loading it
	FinishMigrate Status = "finish-migrate" // stopped by QEMU for its own switchover
	PostMigrate   Status = "postmigrate"    // sent away; Cont would make a second copy
	Shutdown      Status = "shutdown"
	Panicked      Status = "guest-panicked"
	IOError       Status = "io-error"
	InternalError Status = "internal-error"
)

// Statuses lists the run states that have a meaning here; QEMU has some more.
var Statuses = []Status{Running, Paused, Incoming, FinishMigrate, PostMigrate, Shutdown, Panicked, IOError, InternalError}

// MigrationStatus is a migration's state, by QEMU's names (qapi/migration.json).
type MigrationStatus string

// The states of a migration, at either end.
const (
	MigrationNone  MigrationStatus = "none"
	Setup          MigrationStatus = "setup"
	Active         MigrationStatus = "active"
	PreSwitchover  MigrationStatus = "pre-switchover" // stopped by QEMU, waits for migrate-continue
	Device         MigrationStatus = "device"         // last pages and device state are being sent
	Completed      MigrationStatus = "completed"
	Failed         MigrationStatus = "failed"
	Cancelling     MigrationStatus = "cancelling"
	Cancelled      MigrationStatus = "cancelled"
	PostcopyPaused MigrationStatus = "postcopy-paused"
)

// Ended says that nothing is under way any more.
func (s MigrationStatus) Ended() bool {
	switch s {
	case "", MigrationNone, Completed, Failed, Cancelled:
		return true
	}
	return false
}

// Hold is the means by which a migration is kept from finishing before it is let.
type Hold string

const (
	// HoldAck: the source waits for SWITCHOVER_ACK on the return path, which the
	// transfer keeps back (QEMU 8.1 and later). Nothing leaks, no guest is too quiet.
	HoldAck Hold = "switchover-ack"
	// HoldLowBandwidth: a downtime limit of 1 ms, and QEMU's pause-before-switchover
	// as a fence. A quiet guest may get to the fence first: Stop then fails, the
	// migration is to be cancelled, and the guest runs again.
	HoldLowBandwidth Hold = "low-bandwidth"
)

// MigrateOptions are the same at both ends of a migration, but for the URI and what is said below.
type MigrateOptions struct {
	URI              string // QEMU's: unix:PATH, tcp:HOST:PORT, tcp:HOST:PORT,mptcp=on
	Multifd          bool   // pages on Channels streams of their own
	Channels         int    // 1 … 255, with Multifd; 0 is 2
	Compression      string // with Multifd: "zstd", "zlib", "none" or ""
	CompressionLevel int    // of zstd 1 … 20, of zlib 1 … 9; 0 is 1
	Xbzrle           bool   // delta of pages sent again; not with Multifd
	MaxBandwidth     int64  // bytes per second; 0 is QEMU's highest
	// HoldSwitchover: the source does not finish, nor look for the last time at which pages are
	// dirty, until Stop and then ReleaseSwitchover; and not before the transfer allows it.
	// At the destination: only where the source's Hold is HoldAck, which it acknowledges.
	HoldSwitchover bool
	// LooksAtOnce: a source that was held looks, once it is released, for the last time at which pages are dirty as
	// soon as it can, QEMU within 100 ms. Else it sends those that it knows of before: what the guest wrote to again
	// since it looked goes twice in the pause.
	LooksAtOnce bool
	// KeepsLimit: nobody but the hypervisor keeps the bandwidth. A source that has a limit as it is released does not
	// look at once then: what is left after the last look is sent as fast as it can be.
	KeepsLimit bool
	// Looks, if any, is called each time that a source with LooksAtOnce is released, while nothing waits for it: its
	// connections may have been kept from taking more until then.
	Looks func()
	// Postcopy: the stream may let the guest run before all of its memory is there. Only at
	// the destination; the source knows nothing of it.
	Postcopy      bool
	Throttles     bool          // the guest may be throttled while it is sent (Machine.Throttle). Only at the source
	DowntimeLimit time.Duration // what QEMU aims at by itself; 0 is 300 ms, at most 2000 s
}

// Progress is a migration as its hypervisor sees it. At the destination only Status and
// Error are known.
type Progress struct {
	Status      MigrationStatus
	Total       int64 // bytes of guest memory
	Remaining   int64 // bytes of pages known to be dirty or unsent, counted at the last look
	Transferred int64 // bytes written to the streams
	// DirtyRate is the rate of writing measured over the last rounds, of a second at least, in bytes per second; 0
	// before the second round. A page counts once in each round: with many in a second that is far more than is written.
	DirtyRate int64
	// Rounds counts the looks at which pages are dirty; each round begins with one. While
	// a migration is held with nothing left to send, QEMU looks many times a second.
	Rounds     int64
	Throughput int64 // bytes per second written, over the last 100 ms
	Throttled  int   // percent of the time for which the guest's processors are made to stand still
	// Downtime is QEMU's own figure, known when it has finished. With an own Stop before,
	// it counts from QEMU's last step only.
	Downtime time.Duration
	Error    string // why it failed, in the hypervisor's words
}

// Facts are what must agree between two hosts, and what a plan needs to know.
type Facts struct {
	Name     string
	Version  string // of the hypervisor, such as "10.0.2"
	Accel    string // "kvm" or "tcg"
	Machine  string // versioned machine type, such as "pc-q35-10.0"
	CPU      string // CPU model, such as "max"
	VCPUs    int
	Memory   int64 // bytes, of memory that was plugged in too
	Base     int64 // bytes of it that it was started with
	PageSize int64 // bytes, the largest of what memory is made of; 0: not known
	Disks    []Disk
	Blockers []string // why the guest cannot migrate; empty if it can
	Hold     Hold     // the hold that this hypervisor offers
	// Quiet: no NIC of it has the guest itself announce where it is (VIRTIO_NET_F_GUEST_ANNOUNCE
	// of the virtio specification). A destination starts it with the same; false also where an older agent tells.
	Quiet bool `json:",omitempty"`
	// Hints: a balloon of it tells which pages are free (free-page-hint), which QEMU then never sends.
	Hints bool `json:",omitempty"`
	// Apart: the hypervisor cannot open what the agent names, as it is another user's, confined, or has another root
	// directory.
	Apart bool `json:",omitempty"`
	// CPUs are the processors' places, by which QEMU's stream names them; nil: an older agent tells only how many.
	CPUs []int `json:",omitempty"`
	// MaxCPUs is how many processors there may be, those to be plugged in too: the state of ACPI's hot plug has as many
	// records, uncounted (hw/acpi/cpu.c). 0: not told.
	MaxCPUs int `json:",omitempty"`
	// Unit is systemd's unit that runs the hypervisor here, and may start it again as it ends; "": none is known.
	Unit string `json:"-"`
	// Shared are the disks, by their ids, that the guest may write and others, too: what those write goes by no copy.
	Shared []string `json:"-"`
	// Closed are the disks that the hypervisor must open again as it lets the guest go, and cannot, each with why.
	Closed []string `json:",omitempty"`
	// Features are what the guest can use of its first processor; nil: not told, as by an
	// older agent.
	Features *Features `json:",omitempty"`
}

// SMP is with how many processors a hypervisor must be started at least to have all of these without plugging them in.
func (f Facts) SMP() int {
	if len(f.CPUs) == 0 {
		return f.VCPUs
	}
	return slices.Max(f.CPUs) + 1
}

// Features are what a guest can use of its processor.
type Features struct {
	// CPUID has the bits that the guest is shown, by leaf, subleaf where the leaf has them
	// (both hexadecimal), and register: "1.ECX", "7.0.EBX". Registers without a bit are left
	// out, and so is what is not in CPUID.
	CPUID map[string]uint32
	// Unavailable names what the CPU model has and the hypervisor cannot give on its host.
	Unavailable []string
}

// Disk is a guest's disk.
type Disk struct {
	ID       string // the name at both hosts
	Path     string
	Format   string // "raw" or "qcow2"
	Size     int64  // bytes, as the guest sees it; filled in by Facts
	ReadOnly bool
}

// Event is something that the hypervisor told.
type Event struct {
	Name string // QEMU's: STOP, RESUME, MIGRATION, SHUTDOWN, RESET, GUEST_PANICKED, …
	At   time.Time
	Data json.RawMessage
}

// Reason returns the reason in a SHUTDOWN or RESET event (guest-reset, guest-shutdown,
// guest-panic, host-qmp-quit, host-signal …), "" in others.
func (e Event) Reason() string {
	if e.Name != "SHUTDOWN" && e.Name != "RESET" {
		return ""
	}
	var d struct {
		Reason string `json:"reason"`
	}
	if json.Unmarshal(e.Data, &d) != nil {
		return ""
	}
	return d.Reason
}

// Exit is how a hypervisor process ended.
type Exit struct {
	// Reason is that of its last SHUTDOWN event, such as guest-reset (with our arguments
	// also a panic of the guest), guest-shutdown, host-qmp-quit; "" if it gave none,
	// which means that it was killed or broke.
	Reason string
	// Detail is the exit status where the process was ours, and the last line it wrote.
	Detail string
}
