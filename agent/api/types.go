package api

import (
	"encoding/json"
	"net/netip"
	"time"

	"godwit/agent/record"
	"godwit/migration"
	"godwit/netstate"
)

// HostInfo is what an agent tells about its host.
type HostInfo struct {
	Host       string          `json:"host"`
	Site       string          `json:"site"`
	Guests     []GuestInfo     `json:"guests"`
	Neighbours []NeighbourInfo `json:"neighbours"`
}

// StatusStarving is that of a guest which an agent that was started again does not have under care, as its QEMU waits
// for pages: its migration ends when they have come.
const StatusStarving = "unknown: pages of its memory are missing, and its QEMU may answer when they have come"

// GuestInfo is what an agent tells about a guest.
type GuestInfo struct {
	Name      string              `json:"name"`
	Host      string              `json:"host"`
	Status    string              `json:"status"`
	Memory    int64               `json:"memory"` // bytes
	Addresses []migration.Address `json:"addresses"`
	Migration string              `json:"migration,omitempty"`
	Booted    string              `json:"booted,omitempty"` // what became of it when it booted anew by itself; "": it did not, or knows its address itself
	PID       int                 `json:"pid"`
	Dir       string              `json:"dir"`
	Taps      []string            `json:"taps"`
	MACs      []string            `json:"macs"`
	Epoch     uint64              `json:"epoch"`
	Tunnels   []GuestTunnel       `json:"tunnels,omitempty"`      // the oldest first
	Flows     []netstate.Flow     `json:"tunnel_flows,omitempty"` // what took its tunnels lately
}

// GuestTunnel is this host's end of a tunnel that leads to or from a guest here: what the
// firewalls between the two hosts must pass. Tunnels for memory are not among them.
type GuestTunnel struct {
	Kind      string         `json:"kind"`
	Device    string         `json:"device"`
	Peer      string         `json:"peer"`              // host at the other end
	Local     netip.AddrPort `json:"local"`             // outer address, and port of UDP; a mere number for gre and ipip
	Remote    netip.AddrPort `json:"remote"`            // the same of the other end
	Addresses []netip.Addr   `json:"addresses"`         // the guest's, that take it
	NotLed    string         `json:"not_led,omitempty"` // what the peer says of them, where it leads them here no more
}

// NeighbourInfo is another host as this one knows it, and what that one says of itself when it is asked.
type NeighbourInfo struct {
	Host   string `json:"host"`
	Site   string `json:"site"`
	State  string `json:"state,omitempty"`       // for people; "" where it was not asked
	Up     *bool  `json:"up,omitempty"`          // its agent answers
	Guests *int   `json:"guest_count,omitempty"` // null: it does not say
	Free   *int64 `json:"free,omitempty"`        // bytes of memory for guests
}

// Forgotten is a guest that left and runs nowhere any more, by a person's word.
type Forgotten struct {
	Guest     string       `json:"guest"`
	Addresses []netip.Addr `json:"addresses"` // that were led to where it went
}

// GuestCall is a call that goes through to the guest's channel.
type GuestCall struct {
	Method string          `json:"method"`
	Params json.RawMessage `json:"params,omitempty"`
	WaitMS int             `json:"wait_ms,omitempty"` // 0: 30 s
}

// MigrateAnswer names the migration that has begun.
type MigrateAnswer struct {
	ID string `json:"id"`
}

// Bandwidth asks for a limit of a migration under way.
type Bandwidth struct {
	Bandwidth int64 `json:"bandwidth"` // bit/s over all paths; 0: unlimited
}

// Doubt is a migration that cannot end by itself, as one of its hosts knows it.
// docs/ownership.md says when that is, and what each way out costs.
type Doubt struct {
	ID     string   `json:"id"`
	Guest  string   `json:"guest"`
	Side   string   `json:"side"` // source, destination; "": a journal that cannot be read
	Peer   string   `json:"peer"`
	Epoch  uint64   `json:"epoch"`
	Here   string   `json:"here"`  // what is known on this host
	There  string   `json:"there"` // what the other host says, now
	Risk   string   `json:"risk,omitempty"`
	Ways   []string `json:"ways,omitempty"` // what a person can do on this host
	Proven bool     `json:"proven"`         // the other host itself says that the guest does not run there
	Alive  bool     `json:"-"`              // the other host says that it runs, or will end the doubt by itself
}

// TakeBack is a person's word that a guest that was let go comes back, or that one that landed
// stays.
type TakeBack struct {
	Fenced bool `json:"fenced"` // the person says that the guest cannot run on the other host
}

// TunnelUse is one guest's detours on this host, and what takes them.
type TunnelUse struct {
	Guest     string          `json:"guest"`
	Tunnels   []string        `json:"tunnels"`           // devices
	Peers     []string        `json:"peers"`             // hosts at their other ends
	Addresses []netip.Addr    `json:"addresses"`         // that take them
	Until     time.Time       `json:"until,omitzero"`    // end of the lease; zero: a migration is under way, or for good
	NotLed    string          `json:"not_led,omitempty"` // what peers say that lead none of them here any more
	Flows     []netstate.Flow `json:"flows"`             // of the last netstate.FlowMemory
}

// FeedEvent is an event of any migration of a host.
type FeedEvent struct {
	Migration string `json:"migration"`
	Guest     string `json:"guest"`
	record.Event
}
