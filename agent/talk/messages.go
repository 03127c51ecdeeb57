// Package talk is what the agents of two hosts ask each other of a migration, and answer: in check, in prepare, at the
// release and after it, and of detours. What comes from another host is used as it is once it was checked here, or cut
// down to what can be meant, and held against what this host knows of that one.
package talk

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"godwit/agent/capable"
	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/peer"
	"godwit/agent/record"
	"godwit/agent/sample"
	"godwit/migration"
	"godwit/netstate"
	"godwit/vm"
)

// Offer is what the source tells in check.
type Offer struct {
	Plan        migration.Plan     `json:"plan"`
	Description config.Description `json:"description"`
	Facts       vm.Facts           `json:"facts"`
	CPUFlags    string             `json:"cpu_flags"`      // of the source's processor, where it is the guest's own; see capable.Flags
	Touched     int64              `json:"touched"`        // bytes that the guest's QEMU has in memory
	Endpoint    uint8              `json:"endpoint"`       // highest MPTCP endpoint id used in the guest
	Root        string             `json:"root,omitempty"` // mark of its image's root disk; see config.Config.RootMark
	MTU         int                `json:"mtu,omitempty"`  // of guests at the source, bytes; 0: it does not say
	// NoIPv6 is set where the guest has it turned off; see handed.LacksIPv6.
	NoIPv6 bool          `json:"no_ipv6,omitempty"`
	Sample *sample.Pages `json:"sample,omitempty"` // of its memory; nil: none was taken, or memory goes by a transfer to which it is the same what the destination has
}

// Guest is what an offer says of the guest that this host must be capable of.
func (o Offer) Guest() capable.Guest {
	return capable.Guest{Name: o.Plan.Guest, Facts: o.Facts, Flags: o.CPUFlags, MTU: o.MTU, Started: len(o.Description.Start) > 0}
}

// Acceptance is the destination's answer in check.
type Acceptance struct {
	Next  []migration.Address `json:"next"`
	Token []byte              `json:"token"` // for probes of the path
	Probe uint16              `json:"probe"` // a UDP port as tunnels have them, which answers probes; 0: there is none
	// Ends are where this host's end of a tunnel may be, the preferred one first, each with such a port; nil: an agent
	// of before, at its first.
	Ends []netip.AddrPort `json:"ends,omitempty"`
	Now  int64            `json:"now"`            // unix ns of the destination's clock
	Free *int64           `json:"free,omitempty"` // bytes of memory that it has for guests, less what stays in reserve; nil: it does not say

	Buffers  *peer.Buffers `json:"buffers,omitempty"`   // of its connections; nil: it does not say
	ReadOnly bool          `json:"read_only,omitempty"` // it takes disks in by lanes, read-only ones too
	Expects  bool          `json:"expects,omitempty"`   // it can be asked to have its LAN know of the next addresses

	Notes []string `json:"notes,omitempty"` // what a person should know of that host, and bars nothing

	Has []bool `json:"has,omitempty"` // of each page of the offer's sample, whether it has that already; nil: it does not say
}

// CheckPlan says what of another host's plan of a guest cannot be meant, also where that is only asked about: each
// address is looked at then.
func CheckPlan(plan migration.Plan, d config.Description) error {
	wrong := func(format string, a ...any) error {
		return &migration.Problem{Code: migration.CodeUsage, Text: fmt.Sprintf("plan of guest %.100q: ", plan.Guest) + fmt.Sprintf(format, a...)}
	}
	if plan.Guest != d.Name {
		return wrong("the description is of %.100q", d.Name)
	}
	if held, next := len(plan.Held), len(plan.Next); held > migration.MostAddresses || next > migration.MostAddresses {
		return wrong("%d addresses that it holds, %d next ones", held, next)
	} else if len(plan.Paths) > migration.MostAddresses {
		return wrong("%d paths", len(plan.Paths))
	} else if !plan.KeepsAddress() && held+next > migration.MostAddresses { // it may keep all of them, and nobody reads what has more
		return &migration.Problem{Code: migration.CodeAddress, Text: fmt.Sprintf(
			"guest %s keeps %d addresses for what could not follow it, and has no more than %d with the next: wait until their leases end (`godwit guest show %[1]s`)",
			plan.Guest, held, migration.MostAddresses)}
	}
	if err := checkAddresses(slices.Concat(plan.Held, plan.Next)); err != nil {
		return wrong("%v", err)
	}
	return nil
}

// checkAddresses says what of addresses that came from another host cannot be meant. Hosts that they name may be
// known to nobody here, and are told of in notes.
func checkAddresses(all []migration.Address) error {
	if err := migration.CheckAddresses(all); err != nil {
		return err
	}
	for _, addr := range all {
		for _, host := range []string{addr.Home, addr.SubnetAgent} {
			if host != "" && (!config.IsWord(host) || len(host) > mostWayID) {
				return fmt.Errorf("address %s of %.100q, which is no host's name", addr.Prefix.Addr(), host)
			}
		}
	}
	return nil
}

// Preparation is what the source tells in prepare.
type Preparation struct {
	Description   config.Description `json:"description"`
	Facts         vm.Facts           `json:"facts"`
	Endpoint      uint8              `json:"endpoint"`
	Table         int                `json:"table"`
	Plan          migration.Plan     `json:"plan"`
	TunnelKey     string             `json:"tunnel_key"`               // public
	Tunnel        netip.AddrPort     `json:"tunnel"`                   // outer address at the source
	TunnelTo      netip.Addr         `json:"tunnel_to,omitzero"`       // at which of Acceptance.Ends its other end is to be; invalid: at the first
	MemoryTunnels []PathTunnel       `json:"memory_tunnels,omitempty"` // for transfers that are direct
	LaneKey       []byte             `json:"lane_key,omitempty"`       // of the lanes of our own data path, and of disks
	Window        int64              `json:"window,omitempty"`         // bytes that the one connection of transfer mptcp may have on their way; 0: as the kernel has it
	Touched       int64              `json:"touched,omitempty"`        // see Offer; 0: it does not say
	Channels      int                `json:"channels,omitempty"`       // of transfer qemu-multifd, as many on both hosts; 0: two

	InnerUsed []netip.Prefix `json:"inner_used,omitempty"` // what the source's devices have that a tunnel's inner addresses must not be; see tunnel.InnerUsed

	Routers []netstate.Advertisement `json:"routers,omitempty"` // what the routers of the guest's link advertise
	ToDrop  []netip.Addr             `json:"to_drop,omitempty"` // see Held
	Boot    string                   `json:"boot,omitempty"`    // see Held; "": it does not say
}

// Check says what of a preparation cannot be meant. It comes from another host, and
// names, indices and lists in it are used as they are from then on.
func (p Preparation) Check() error {
	wrong := func(format string, a ...any) error {
		return &migration.Problem{Code: migration.CodeUsage, Text: "prepare guest: " + fmt.Sprintf(format, a...)}
	}
	if err := p.Description.Check(); err != nil {
		return err
	}
	if err := CheckPlan(p.Plan, p.Description); err != nil {
		return err
	}
	switch {
	case p.Plan.Active < 0 || p.Plan.Active >= len(p.Description.NICs):
		return wrong("active NIC %d of %d", p.Plan.Active, len(p.Description.NICs))
	case len(p.Plan.Held) == 0:
		return wrong("0 addresses that it holds")
	case !p.Plan.KeepsAddress() && (len(p.Plan.Next) == 0 || len(p.Description.NICs) < 2):
		return wrong("no next address, or no NIC for it")
	case len(p.Boot) > care.LongestBoot:
		return wrong("a boot id of %d bytes", len(p.Boot))
	case len(p.MemoryTunnels) > migration.MostAddresses:
		return wrong("%d tunnels for memory", len(p.MemoryTunnels))
	case p.Channels < 0 || p.Channels > MostChannels:
		return wrong("%d channels", p.Channels)
	case len(p.InnerUsed) > MostInner:
		return wrong("%d inner addresses", len(p.InnerUsed))
	}
	if err := capable.CheckMachine(p.Facts); err != nil {
		return wrong("%v", err)
	}
	if err := errors.Join(detour.CheckHeard(p.Routers), care.CheckToDrop(p.ToDrop)); err != nil {
		return wrong("%v", err)
	}
	if data, err := json.Marshal(p); err != nil || len(data) > mostPreparation {
		return wrong("a preparation of %d bytes, at most %d: shorten the guest's description", len(data), mostPreparation)
	}
	return nil
}

// PathTunnel is one end of a tunnel for memory.
type PathTunnel struct {
	Key string         `json:"key"`           // public
	End netip.AddrPort `json:"end"`           // outer
	MTU int            `json:"mtu,omitempty"` // bytes; of the source, which has measured it
}

const (
	// MostChannels bounds those of transfer qemu-multifd.
	MostChannels = 4
	// MostInner bounds what a host tells of its inner addresses, and of what is like them.
	MostInner = 512
)

// mostPreparation bounds a preparation, bytes: the journal has it in one record, its description
// three times.
const mostPreparation = 200 << 10

// Prepared is the destination's answer.
type Prepared struct {
	TunnelKey string         `json:"tunnel_key"`
	Tunnel    netip.AddrPort `json:"tunnel"`
	Tunnels   []PathTunnel   `json:"memory_tunnels,omitempty"`
	Coming    bool           `json:"coming,omitempty"` // it sends addresses of the guest away, which come back with it
	Home      []netip.Addr   `json:"home,omitempty"`   // addresses that are at home there, although another host stands for them: its subnet agent gives them back
	Memory    string         `json:"memory,omitempty"` // where QEMU's own connection goes, for transfers that are direct
}

// ReleaseAnswer is what the destination says of a release.
type ReleaseAnswer struct {
	State    string             `json:"state"`             // waiting (for bytes), running, declined
	Resumed  int64              `json:"resumed,omitempty"` // the guest runs, unix ns by the destination's clock; 0: not yet
	Now      int64              `json:"now,omitempty"`     // where it runs: that clock, as this is said, unix ns
	Problem  *migration.Problem `json:"problem,omitempty"`
	Vanished string             `json:"vanished,omitempty"` // why nobody there can say more
}

// ExpectAnswer is what a destination says whose LAN is to know of the guest's next addresses.
type ExpectAnswer struct {
	Free bool `json:"free"` // nobody has taken one, and the guest may tell its clients of them
}

// Try says which try of a migration asks (expect, home, away): one that comes late is refused.
type Try struct {
	Epoch uint64 `json:"epoch"` // of the try that asks; 0: an agent of before, which does not say
}

// Undo asks a destination to undo, for good, and says why.
type Undo struct {
	migration.Problem
	Epoch    uint64 `json:"epoch"`    // of the source's right; above the plan's it took the guest back
	Released bool   `json:"released"` // it let go; it asks because it knows that its memory did not get through
	// Lost: pages that the guest misses at the destination are nowhere any more.
	Lost bool `json:"lost,omitempty"`
	// Unled: no packet was led there, and this end of the tunnel may be gone: what waits there was for an address that
	// the guest has not yet.
	Unled bool `json:"unled,omitempty"`
}

// CourseAnswer is what a source says of a migration when its destination asks.
type CourseAnswer struct {
	Course   string             `json:"course"` // under way; over: turned back, or ended; unknown: never begun here
	Released bool               `json:"released"`
	Heard    bool               `json:"heard"` // that the guest has landed: nobody takes it back any more
	Epoch    uint64             `json:"epoch"` // of the source's right; above the plan's it took the guest back
	Problem  *migration.Problem `json:"problem,omitempty"`
	Lost     bool               `json:"lost,omitempty"`  // as of an Undo
	Keeps    *bool              `json:"keeps,omitempty"` // where it turned back: it has the guest, or keeps what that was, if that has ended; nil: it does not say
}

// The courses of an answer.
const (
	CourseUnderWay = "under way"
	CourseOver     = "over"
	CourseUnknown  = "unknown"
)

// LandedAnswer is how far the destination is after the guest runs there.
type LandedAnswer struct {
	Report record.Report `json:"report"`
	Leased []netip.Addr  `json:"leased"` // addresses that still need the tunnel
	Lease  time.Duration `json:"lease"`  // what is left of theirs; 0: for good
	Moved  []netip.Addr  `json:"moved"`  // addresses whose home sends them to the destination by itself now
}
