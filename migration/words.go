// Package migration is the state machine of one migration, without effects of its own: one
// for each side, Source and Destination.
//
// Step takes an input and returns the next state and the effects to perform. It reads no
// clock and touches nothing: the agent performs the effects, and feeds back what came of
// them. sourceSteps, in source.go, is a migration from top to bottom; docs/ownership.md
// says why the guest runs once, whatever breaks.
//
// words.go has the phases, events, outcomes and error codes. What a person or a program
// sees of them (JSON, documentation, page) is made from its lists.
package migration

// Phase is a stretch of a migration.
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

// Role is what a host is to a migration.
type Role string

// The roles.
const (
	AtSource      Role = "source"
	AtDestination Role = "destination"
)

// Roles lists all roles.
var Roles = []Role{AtSource, AtDestination}

// EventName names a moment of a migration that others may hang work on.
type EventName string

// The events (Silvera §3.2 names the idea; the names are ours).
const (
	PreMigrationStart EventName = "PRE_MIGRATION_START"
	MigrationStart    EventName = "MIGRATION_START"
	DiskSeeded        EventName = "DISK_SEEDED"
	PreSourceSuspend  EventName = "PRE_SOURCE_SUSPEND"
	SourceSuspend     EventName = "SOURCE_SUSPEND"
	TargetResume      EventName = "TARGET_RESUME"
	HandoverDone      EventName = "HANDOVER_DONE"
	MigrationDone     EventName = "MIGRATION_DONE"
	MigrationAborted  EventName = "MIGRATION_ABORTED"
	LeaseEnded        EventName = "LEASE_ENDED"
)

// Moment is what an event means and where it is told.
type Moment struct {
	Name   EventName
	Blocks bool   // the migration waits for what hangs on it
	Where  string // source or both: the hosts whose hooks hear of it
	Means  string
}

// Moments are the events in the order in which a migration passes them.
var Moments = []Moment{
	{PreMigrationStart, true, "source", "both hosts can do it, nothing has been changed"},
	{MigrationStart, false, "both", "the destination is being prepared"},
	{DiskSeeded, false, "source", "every disk was copied once, what is written follows"},
	{PreSourceSuspend, true, "source", "what is left of memory fits the downtime budget, the guest still runs here"},
	{SourceSuspend, false, "source", "the guest is paused"},
	{TargetResume, false, "both", "the guest runs at the destination"},
	{HandoverDone, false, "both", "the connections have moved to the next address, or stay on the tunnel"},
	{MigrationDone, false, "both", "the migration is completed, the source is cleaned up"},
	{MigrationAborted, false, "both", "the migration came to nothing after PRE_MIGRATION_START; the text says why"},
	{LeaseEnded, false, "both", "the tunnel for what could not follow is gone"},
}

// MomentOf finds an event.
func MomentOf(name EventName) (Moment, bool) {
	for _, m := range Moments {
		if m.Name == name {
			return m, true
		}
	}
	return Moment{}, false
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

// Outcomes lists all outcomes.
var Outcomes = []Outcome{Completed, Aborted, Refused, InDoubt, Failed}

// Fate is what a migration made of one of the guest's connections.
type Fate string

// The fates.
const (
	Moved       Fate = "moved"     // a working subflow on the next address
	Tunnelled   Fate = "tunnelled" // alive on the old address: through the tunnel, unless that is at home there
	EndedItself Fate = "ended"     // closed by one of its ends, as connections are
	Lost        Fate = "lost"      // could not go on
)

// Fates lists all fates.
var Fates = []Fate{Moved, Tunnelled, EndedItself, Lost}

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
	CodeHook         Code = "hook"          // a hook of a blocking event refused or failed
	CodeAsked        Code = "asked"         // a person or a program asked for the abort
	CodeAgent        Code = "agent"         // an agent was ended in its middle
	CodeInternal     Code = "internal"      // ours
)

// Codes lists all error codes.
var Codes = []Code{
	CodeUsage, CodeUnknownGuest, CodeUnknownSite, CodeBusy, CodeGuest, CodeGuestGone, CodeAddress, CodeCapacity,
	CodeHypervisor, CodePath, CodePeer, CodeBudget, CodeTimeout, CodeHook, CodeAsked, CodeAgent, CodeInternal,
}

// Problem is an error with its code. Its text is one line: what, which object,
// why, what to do.
type Problem struct {
	Code Code   `json:"code"`
	Text string `json:"text"`
}

func (p *Problem) Error() string { return p.Text }
