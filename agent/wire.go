package agent

import (
	"net/netip"
	"time"

	"godwit/migration"
	"godwit/vm"
)

// Offer is what the source tells in check.
type Offer struct {
	Plan        migration.Plan `json:"plan"`
	Description Description    `json:"description"`
	Facts       vm.Facts       `json:"facts"`
	CPUFlags    string         `json:"cpu_flags"` // of the source's processor; empty with TCG
	Touched     int64          `json:"touched"`   // bytes that the guest's QEMU has in memory
	Endpoint    uint8          `json:"endpoint"`  // highest MPTCP endpoint id used in the guest
	Table       int            `json:"table"`     // highest routing table used in the guest
}

// Acceptance is the destination's answer in check.
type Acceptance struct {
	Next  []migration.Address `json:"next"`
	Token []byte              `json:"token"` // for probes of the path
	Now   int64               `json:"now"`   // unix ns of the destination's clock
}

// Preparation is what the source tells in prepare.
type Preparation struct {
	Description   Description    `json:"description"`
	Facts         vm.Facts       `json:"facts"`
	Endpoint      uint8          `json:"endpoint"`
	Table         int            `json:"table"`
	Plan          migration.Plan `json:"plan"`
	TunnelKey     string         `json:"tunnel_key"`               // public
	Tunnel        netip.AddrPort `json:"tunnel"`                   // outer address at the source
	MemoryTunnels []pathTunnel   `json:"memory_tunnels,omitempty"` // for transfers that are direct
	ClockSkew     time.Duration  `json:"clock_skew"`               // destination's clock minus the source's
}

// Prepared is the destination's answer.
type Prepared struct {
	TunnelKey string         `json:"tunnel_key"`
	Tunnel    netip.AddrPort `json:"tunnel"`
	Tunnels   []pathTunnel   `json:"memory_tunnels,omitempty"`
	Coming    bool           `json:"coming,omitempty"` // it sends addresses of the guest away, which come back with it
	Memory    string         `json:"memory,omitempty"` // where QEMU's own connection goes, for transfers that are direct
}

// ReleaseAnswer is what the destination says of a release.
type ReleaseAnswer struct {
	State   string             `json:"state"` // waiting (for bytes), running, declined
	Resumed int64              `json:"resumed,omitempty"`
	Problem *migration.Problem `json:"problem,omitempty"`
}

// CourseAnswer is what a source says of a migration when its destination asks.
type CourseAnswer struct {
	Course   string             `json:"course"` // under way; over: turned back, or ended; unknown: never begun here
	Released bool               `json:"released"`
	Problem  *migration.Problem `json:"problem,omitempty"`
}

// The courses of an answer.
const (
	courseUnderWay = "under way"
	courseOver     = "over"
	courseUnknown  = "unknown"
)

// LandedAnswer is how far the destination is after the guest runs there.
type LandedAnswer struct {
	Landing migration.Landing `json:"landing"`
	Report  Report            `json:"report"`
	Leased  []netip.Addr      `json:"leased"` // addresses that still need the tunnel
	Lease   time.Duration     `json:"lease"`  // what is left of theirs; 0: for good
	Moved   []netip.Addr      `json:"moved"`  // addresses whose home sends them to the destination by itself now
}

// Repoint asks an address's home to send it to another host.
type Repoint struct {
	Migration string         `json:"migration"`
	Guest     string         `json:"guest"`
	Addresses []netip.Addr   `json:"addresses"`
	TunnelKey string         `json:"tunnel_key"`
	Tunnel    netip.AddrPort `json:"tunnel"`
	Kind      string         `json:"kind"`
	Lease     time.Duration  `json:"lease"`             // hosts' clocks differ: what is left, not until when
	Forever   bool           `json:"forever,omitempty"` // no end
}
