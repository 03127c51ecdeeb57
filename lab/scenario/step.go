package scenario

import (
	"fmt"
	"strings"
	"time"
)

// Phases are the names that a step may wait for, in their order.
var Phases = []string{"check", "prepare", "seed", "copy", "switch", "handover", "settle"}

// Step is one thing that happens in a run. Exactly one of its pointers is set.
type Step struct {
	At         At
	Migrate    *Migrate
	Abort      *Abort
	MoveClient *MoveClient
	Cut        *Cut
	Degrade    *Degrade
	Kill       *Kill
	Exec       *Exec
	Evacuate   *Evacuate
	Line       int // in the file, for messages
}

// At is when a step is due: at Time after time 0, or, where Guest is set, Plus
// after the beginning of Phase in that guest's migration.
type At struct {
	Time  time.Duration
	Guest string
	Phase string
	Plus  time.Duration
}

// Triggered says that the step waits for a phase and not for a time.
func (a At) Triggered() bool { return a.Guest != "" }

// earliest is the soonest after time 0 that the step may be due.
func (a At) earliest() time.Duration { return a.Time + a.Plus }

// String reads like the file: `3s`, or `web copy + 500ms`.
func (a At) String() string {
	switch {
	case !a.Triggered():
		return a.Time.String()
	case a.Plus == 0:
		return a.Guest + " " + a.Phase
	default:
		return a.Guest + " " + a.Phase + " + " + a.Plus.String()
	}
}

// Migrate asks for a guest to move.
type Migrate struct {
	Guest            string
	To               string // a site's or host's name
	Mode             string // auto, precopy, hybrid, postcopy, stopcopy
	Transfer         string // auto, lanes, mptcp, qemu-tcp, qemu-mptcp, qemu-multifd, qemu-xbzrle
	Network          string // auto, which is the guest's own, also where the step says none; mptcp, drain, tunnel
	Downtime         time.Duration
	Bandwidth        int64 // bit/s; 0: no limit
	Throttle         int   // mode precopy: percent of the time for which the guest's processors may stand still; 0: not throttled
	InsecureTransfer bool  // no encryption, qemu-* only
}

// Abort calls a guest's migration off.
type Abort struct{ Guest string }

// MoveClient takes a client to another place: off at once, on again after Gap.
type MoveClient struct {
	Client string
	To     string // a site's name, or Internet
	Gap    time.Duration
}

// AllUplinks in Cut and Degrade means every uplink of the site.
const AllUplinks = "all"

// Cut breaks an uplink.
type Cut struct {
	Site, Uplink string
	For          time.Duration // 0: for the rest of the run; 1 ns: over at once
}

// Degrade changes an uplink. Nil leaves a property as it was.
type Degrade struct {
	Site, Uplink string
	Rate         *int64 // bit/s
	Delay        *time.Duration
	Loss         *float64
	For          time.Duration // as of Cut
}

// Kill ends an agent's process, or a guest's QEMU at one side, by SIGKILL.
type Kill struct {
	Agent        string // a site's or host's name, or ""
	QEMU         string // a guest's name, or ""
	Side         string // of QEMU: source, destination; "": the source while the guest moves, else where it is
	RestartAfter time.Duration
	Restart      bool // RestartAfter was given
}

// Exec runs a command inside a guest.
type Exec struct{ Guest, Command string }

// Evacuate moves every guest off a host.
type Evacuate struct {
	Host string
	To   string // a site's or host's name; "": wherever the planner says
}

// Kind is the step's key in the file.
func (s Step) Kind() string {
	kind, _, _ := strings.Cut(s.String(), " ")
	return kind
}

// String says in one line what the step does, for logs and the picture.
func (s Step) String() string {
	switch {
	case s.Migrate != nil:
		return fmt.Sprintf("migrate %s to %s", s.Migrate.Guest, s.Migrate.To)
	case s.Abort != nil:
		return "abort " + s.Abort.Guest
	case s.MoveClient != nil:
		return fmt.Sprintf("move %s to %s", s.MoveClient.Client, s.MoveClient.To)
	case s.Cut != nil:
		return "cut " + s.Cut.Site + "/" + s.Cut.Uplink + lasting(s.Cut.For)
	case s.Degrade != nil:
		return "degrade " + s.Degrade.Site + "/" + s.Degrade.Uplink + lasting(s.Degrade.For)
	case s.Kill != nil && s.Kill.QEMU != "" && s.Kill.Side == "":
		return "kill qemu of " + s.Kill.QEMU
	case s.Kill != nil && s.Kill.QEMU != "":
		return fmt.Sprintf("kill qemu of %s at the %s", s.Kill.QEMU, s.Kill.Side)
	case s.Kill != nil:
		return "kill agent " + s.Kill.Agent
	case s.Exec != nil:
		return "exec in " + s.Exec.Guest
	case s.Evacuate != nil && s.Evacuate.To != "":
		return fmt.Sprintf("evacuate %s to %s", s.Evacuate.Host, s.Evacuate.To)
	case s.Evacuate != nil:
		return "evacuate " + s.Evacuate.Host
	}
	return "nothing"
}

// atOnce is how long a change of a link lasts that is said to last 0s.
const atOnce time.Duration = 1

func lasting(d time.Duration) string {
	switch d {
	case 0:
		return ""
	case atOnce:
		d = 0
	}
	return " for " + d.String()
}
