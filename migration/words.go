// Package migration is the pure machine of one migration: its phases, events,
// outcomes and error codes, and what each side does next.
//
// Step takes a state and an input and returns the next state and the effects to
// perform. It reads no clock and touches nothing: the agent performs the effects
// and feeds what came of them back. Every list of phases, events and codes that a
// person or a program sees (JSON, documentation, page) is made from this file.
package migration

// Phase is a stretch of a migration, named in design order.
type Phase string

// The phases. What is true when each ends is in docs/architecture.md.
const (
	Check    Phase = "check"
	Prepare  Phase = "prepare"
	Seed     Phase = "seed"
	Copy     Phase = "copy"
	Switch   Phase = "switch"
	Handover Phase = "handover"
	Settle   Phase = "settle"
)

// Phases lists all phases in order.
var Phases = []Phase{Check, Prepare, Seed, Copy, Switch, Handover, Settle}

// EventName names a moment of a migration that others may hang work on.
type EventName string

// The events (Silvera §3.2 names the idea; the names are ours).
const (
	PreMigrationStart EventName = "PRE_MIGRATION_START" // may block
	MigrationStart    EventName = "MIGRATION_START"
	DiskSeeded        EventName = "DISK_SEEDED"
	PreSourceSuspend  EventName = "PRE_SOURCE_SUSPEND" // may block
	SourceSuspend     EventName = "SOURCE_SUSPEND"
	TargetResume      EventName = "TARGET_RESUME"
	HandoverDone      EventName = "HANDOVER_DONE"
	MigrationDone     EventName = "MIGRATION_DONE"
	LeaseEnded        EventName = "LEASE_ENDED"
)

// Events lists all events in the order in which a migration passes them.
var Events = []EventName{
	PreMigrationStart, MigrationStart, DiskSeeded, PreSourceSuspend, SourceSuspend,
	TargetResume, HandoverDone, MigrationDone, LeaseEnded,
}

// Outcome is how a migration ended, or that it cannot end yet.
type Outcome string

// The outcomes.
const (
	Completed Outcome = "completed" // the guest runs at the destination
	Aborted   Outcome = "aborted"   // the guest runs at the source, as if nothing had been tried
	Refused   Outcome = "refused"   // never began
	InDoubt   Outcome = "in_doubt"  // neither side may start the guest yet; memory and disk are kept
	Failed    Outcome = "failed"    // the guest is lost
)

// Code classes an error, for programs; the text beside it is for people.
type Code string

// The error codes.
const (
	CodeUsage        Code = "usage"         // the request itself is wrong
	CodeUnknownGuest Code = "unknown_guest" // no such guest under care here
	CodeUnknownSite  Code = "unknown_site"  // no such site or host
	CodeBusy         Code = "busy"          // another migration of the guest runs
	CodeGuest        Code = "guest"         // the guest lacks what a migration needs
	CodeGuestGone    Code = "guest_gone"    // the guest powered off, rebooted or panicked
	CodeAddress      Code = "address"       // no next address
	CodeCapacity     Code = "capacity"      // memory or disk is short
	CodeHypervisor   Code = "hypervisor"    // QEMU cannot, or failed
	CodePath         Code = "path"          // no path fits or answers
	CodePeer         Code = "peer"          // the other agent is down, refuses or is not who it should be
	CodeBudget       Code = "budget"        // the downtime budget cannot be met
	CodeTimeout      Code = "timeout"       // a named limit passed
	CodeAsked        Code = "asked"         // a person or a program asked for the abort
	CodeInternal     Code = "internal"      // ours
)

// Problem is an error with its code. Its text is one line: what, which object,
// why, what to do.
type Problem struct {
	Code Code   `json:"code"`
	Text string `json:"text"`
}

func (p *Problem) Error() string { return p.Text }
