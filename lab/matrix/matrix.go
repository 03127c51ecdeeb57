// Package matrix is what `godwit lab faults` tries: every fault in every phase of a
// migration. It says which cells there are, in which order, and judges what was seen
// in one. It is pure; package lab makes the faults and looks.
package matrix

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"godwit/migration"
)

// A Fault is something that breaks. Its names do not change: results are kept by them.
type Fault struct {
	Name string
	// Lasts is how long it goes on; 0: it is over at once, or with the cell.
	Lasts time.Duration
	// Silences: while it lasts nothing gets through between the two agents.
	Silences bool
	// Lingers is how long connections are watched on after the outcome, while it goes on:
	// agents look at leases once a second.
	Lingers time.Duration
	// Ends: it may end the guest itself.
	Ends bool
	// Said is what is said of a guest that ends itself so.
	Said string
	// Reboots: a host loses all its processes, its run directory and what it had in its kernel.
	Reboots bool
}

// The faults' names.
const (
	KillSourceAgent      = "kill-source-agent"      // the source's agent is killed, and started again after 1 s
	KillDestinationAgent = "kill-destination-agent" // the destination's agent is killed, and started again after 1 s
	KillBothAgents       = "kill-both-agents"       // both agents are killed, and started again after 1 s
	KillSourceQEMU       = "kill-source-qemu"       // the guest's QEMU at the source is killed
	KillDestinationQEMU  = "kill-destination-qemu"  // the guest's QEMU at the destination is killed
	Cut3s                = "cut-3s"                 // all uplinks of the source are cut for 3 s
	Cut20s               = "cut-20s"                // all uplinks of the source are cut for 20 s
	CutForGood           = "cut-for-good"           // all uplinks of the source are cut for 45 s, longer than any patience
	CutOneUplink         = "cut-one-uplink"         // the source's uplink that carries the tunnel is cut for 10 s, the other works
	HalfOpenOut          = "half-open-out"          // nothing leaves the source for 10 s, all that comes arrives
	HalfOpenIn           = "half-open-in"           // nothing reaches the source for 10 s, all that it sends arrives
	Loss30               = "loss-30"                // 30 % of packets are lost on all uplinks of the source for 15 s
	DiskFullSource       = "disk-full-source"       // the file system of the source agent's state is full for 5 s
	DiskFullDestination  = "disk-full-destination"  // the file system of the destination agent's state is full for 5 s
	OutOfMemory          = "out-of-memory"          // the destination's agent and QEMU get no more memory: the kernel kills
	GuestPowerOff        = "guest-power-off"        // the guest powers off
	GuestReboot          = "guest-reboot"           // the guest reboots; the lab's guests end with that
	GuestPanic           = "guest-panic"            // the guest's kernel panics; the lab's guests end with that
	ClockSource          = "clock-source"           // the source agent's clock is stepped an hour ahead
	ClockDestination     = "clock-destination"      // the destination agent's clock is stepped an hour back
	RebootSource         = "reboot-source"          // the source's host reboots, which takes 3 s
	RebootDestination    = "reboot-destination"     // the destination's host reboots, which takes 3 s
)

// RestartAfter is how long an agent that was killed stays away, as a service manager
// would have it.
const RestartAfter = time.Second

// RebootTakes is how long a host that reboots stays away.
const RebootTakes = 3 * time.Second

// Away is how long an agent that the fault ends stays away.
func (f Fault) Away() time.Duration {
	if f.Reboots {
		return RebootTakes
	}
	return RestartAfter
}

// forGood is how long a cut lasts that nobody mends: longer than every patience before
// the release, so that each side has decided what it can decide alone. It is mended
// after that, since doubt must end then and connections live through 60 s.
const forGood = 45 * time.Second

// Faults lists all faults.
var Faults = []Fault{
	{Name: KillSourceAgent, Silences: true},
	{Name: KillDestinationAgent, Silences: true},
	{Name: KillBothAgents, Silences: true},
	{Name: KillSourceQEMU, Ends: true},
	{Name: KillDestinationQEMU, Ends: true},
	{Name: Cut3s, Lasts: 3 * time.Second, Silences: true},
	{Name: Cut20s, Lasts: 20 * time.Second, Silences: true},
	{Name: CutForGood, Lasts: forGood, Silences: true},
	{Name: CutOneUplink, Lasts: 10 * time.Second},
	{Name: HalfOpenOut, Lasts: 10 * time.Second, Silences: true},
	{Name: HalfOpenIn, Lasts: 10 * time.Second, Silences: true},
	{Name: Loss30, Lasts: 15 * time.Second},
	{Name: DiskFullSource, Lasts: 5 * time.Second},
	{Name: DiskFullDestination, Lasts: 5 * time.Second},
	{Name: OutOfMemory, Lasts: 3 * time.Second, Silences: true, Ends: true},
	{Name: GuestPowerOff, Ends: true, Said: "powered off"},
	{Name: GuestReboot, Ends: true, Said: "rebooted"},
	{Name: GuestPanic, Ends: true, Said: "panicked"},
	{Name: ClockSource, Lingers: 4 * time.Second},
	{Name: ClockDestination, Lingers: 4 * time.Second},
	{Name: RebootSource, Silences: true, Ends: true, Reboots: true},
	{Name: RebootDestination, Silences: true, Ends: true, Reboots: true},
}

// A Cell is one fault in one phase.
type Cell struct {
	Fault string          `json:"fault"`
	Phase migration.Phase `json:"phase"`
}

func (c Cell) String() string { return c.Fault + " in " + string(c.Phase) }

// Kind is the cell's fault.
func (c Cell) Kind() Fault {
	i := slices.IndexFunc(Faults, func(f Fault) bool { return f.Name == c.Fault })
	if i < 0 {
		return Fault{Name: c.Fault}
	}
	return Faults[i]
}

// Order lists the cells of these faults and phases (none: all), so that a beginning
// of any length has each about as often as the others. The same seed gives the same
// order. The error names what is unknown.
func Order(seed uint64, faults []string, phases []string) ([]Cell, error) {
	var f []string
	for _, known := range Faults {
		f = append(f, known.Name)
	}
	f, err := chosen("fault", faults, f)
	if err != nil {
		return nil, err
	}
	var p []string
	for _, known := range migration.Phases {
		p = append(p, string(known))
	}
	if p, err = chosen("phase", phases, p); err != nil {
		return nil, err
	}
	random := rand.New(rand.NewPCG(seed, 0x676f64776974)) //nolint:gosec // to be repeated, not to be secret
	random.Shuffle(len(f), func(i, j int) { f[i], f[j] = f[j], f[i] })
	random.Shuffle(len(p), func(i, j int) { p[i], p[j] = p[j], p[i] })
	round := len(f) * len(p) / gcd(len(f), len(p)) // then the pairs begin again
	var cells []Cell
	for k := range len(f) * len(p) {
		cells = append(cells, Cell{f[k%len(f)], migration.Phase(p[(k+k/round)%len(p)])})
	}
	return cells, nil
}

func chosen(what string, want, known []string) ([]string, error) {
	if len(want) == 0 {
		return known, nil
	}
	var out []string
	for _, w := range want {
		if !slices.Contains(known, w) {
			return nil, fmt.Errorf("%s %q is unknown; there are: %s", what, w, strings.Join(known, ", "))
		}
		if !slices.Contains(out, w) {
			out = append(out, w)
		}
	}
	return out, nil
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
