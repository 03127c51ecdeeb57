package migration

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Request is what a person asks for. Zero values mean "the best there is".
type Request struct {
	Guest            string        `json:"guest"`
	To               string        `json:"to"`                  // site or host
	Mode             string        `json:"mode,omitempty"`      // auto, precopy, hybrid, postcopy, stopcopy
	Transfer         string        `json:"transfer,omitempty"`  // auto, lanes, mptcp, qemu-tcp, qemu-mptcp, qemu-multifd, qemu-xbzrle
	Network          string        `json:"network,omitempty"`   // auto, mptcp, drain, tunnel
	Downtime         time.Duration `json:"downtime,omitempty"`  // budget; 0: 300 ms
	Bandwidth        int64         `json:"bandwidth,omitempty"` // bit/s over all paths; 0: unlimited
	Buffer           int64         `json:"buffer,omitempty"`    // bytes of memory for pages that wait or were sent, of our own data path; 0: half of the guest's, at most 256 MiB; with mode postcopy, and with hybrid before the rest follows, all of it; all of a host together no more than half of what is free
	Throttle         int           `json:"throttle,omitempty"`  // mode precopy: how far the guest may be throttled, percent of the time for which its processors stand still; 0: not
	InsecureTransfer bool          `json:"insecure_transfer,omitempty"`
	NextAddress      netip.Addr    `json:"next_address,omitzero"` // zero: the destination chooses
	TunnelKind       string        `json:"tunnel,omitempty"`      // one of Tunnels
}

// LeastBandwidth is the lowest limit that a migration may have, bit/s: with less no page comes over in sensible time.
const LeastBandwidth = 8_000

// The values that a request may name, in the order in which help shows them.
var (
	Modes     = []string{"auto", "precopy", "hybrid", "postcopy", "stopcopy"}
	Transfers = []string{"auto", "lanes", "mptcp", "qemu-tcp", "qemu-mptcp", "qemu-multifd", "qemu-xbzrle"}
	Networks  = []string{"auto", "mptcp", "drain", "tunnel"}
	Tunnels   = []string{"auto", "wireguard", "vxlan", "gre", "ipip"}
)

// DefaultDowntime is the downtime budget of a request that names none.
const DefaultDowntime = 300 * time.Millisecond

// Address is one address that a guest holds.
type Address struct {
	Prefix   netip.Prefix `json:"prefix" yaml:"prefix"`                    // with the length of its subnet
	Gateway  netip.Addr   `json:"gateway" yaml:"gateway"`                  // the subnet's router
	Home     string       `json:"home" yaml:"home,omitempty"`              // host whose subnet it belongs to
	Public   netip.Addr   `json:"public,omitzero" yaml:"public,omitempty"` // what clients see in its place, where a 1:1 NAT stands before it; zero: itself
	Endpoint uint8        `json:"endpoint" yaml:"endpoint,omitempty"`      // MPTCP endpoint id in the guest; 0: none announced
	Granted  bool         `json:"granted,omitempty" yaml:"-"`              // by an agent's DHCP server, which goes on answering for it

	Handover    string `json:"handover,omitempty" yaml:"-"`     // migration that gave it to the guest, whose own configuration does not know it; "": none did, or another is its current one by now
	SubnetAgent string `json:"subnet_agent,omitempty" yaml:"-"` // host of the same subnet that its home has stand for it while it is away; "": none
}

// Seen is the address as clients see it.
func (a Address) Seen() netip.Addr {
	if a.Public.IsValid() {
		return a.Public
	}
	return a.Prefix.Addr()
}

// MostAddresses bounds a list of addresses of one guest.
const MostAddresses = 64

// CheckAddresses says what of addresses that were read, or came from another host, cannot be meant.
func CheckAddresses(all []Address) error {
	for _, a := range all {
		if !a.Prefix.IsValid() {
			return errors.New("an address that is none")
		}
		for _, other := range []netip.Addr{a.Gateway, a.Public} {
			if !mayBeZone(other.Zone()) { // it may be any text, and goes where addresses go
				return fmt.Errorf("address %s with %.100q, whose zone is no device", a.Prefix.Addr(), other)
			}
		}
		if a.Handover != "" && !ValidID(a.Handover) {
			return fmt.Errorf("address %s given by %.100q, which is no migration", a.Prefix.Addr(), a.Handover)
		}
	}
	return nil
}

// Bare are the addresses without their subnets, each once.
func Bare(all []Address) []netip.Addr {
	out := make([]netip.Addr, 0, len(all))
	for _, a := range all {
		if !slices.Contains(out, a.Prefix.Addr()) {
			out = append(out, a.Prefix.Addr())
		}
	}
	return out
}

// mayBeZone says whether text may be a device's name, or none.
func mayBeZone(text string) bool {
	return len(text) <= 15 && !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`/:,="`, r) })
}

var idForm = regexp.MustCompile(`^m-[0-9a-f]{8}$`)

// ValidID says whether a migration may have such an id.
func ValidID(id string) bool { return idForm.MatchString(id) }

// Plan is what both sides of a migration have agreed on. Source fills it, the
// destination completes it in check. What a Request names means the same here, and in
// its units; what was left to us (`auto`) is settled at the end of check.
type Plan struct {
	ID        string        `json:"id"`
	Epoch     uint64        `json:"epoch"` // of the right that this migration hands over
	Guest     string        `json:"guest"`
	From      string        `json:"from"` // host
	To        string        `json:"to"`   // host
	FromSite  string        `json:"from_site"`
	ToSite    string        `json:"to_site"`
	Mode      string        `json:"mode"`
	Transfer  string        `json:"transfer"`
	Network   string        `json:"network"`
	Chosen    bool          `json:"network_chosen,omitempty"` // Network was auto: connections that can follow do, whatever it says
	Leases    bool          `json:"leases,omitempty"`         // where it keeps its current addresses for good, those that it has beside them are leased all the same
	Tunnel    string        `json:"tunnel"`
	Downtime  time.Duration `json:"downtime"`
	Bandwidth int64         `json:"bandwidth"`
	Buffer    int64         `json:"buffer,omitempty"`
	Throttle  int           `json:"throttle,omitempty"`
	Insecure  bool          `json:"insecure"`
	Want      netip.Addr    `json:"want,omitzero"`  // next address asked for by name
	Held      []Address     `json:"held"`           // addresses the guest holds now, the current one of each family first
	Next      []Address     `json:"next"`           // addresses at the destination; same as Held's first where the address is kept
	Active    int           `json:"active"`         // index of the NIC that is active at the source
	Fits      int           `json:"fits,omitempty"` // largest packet of the guest that the tunnel carries in one piece, bytes; 0: not known
	// Paths are the pairs of uplinks that memory and disks take, the best first: addresses of From's and of To's.
	// Empty: as the hosts' configurations have them.
	Paths [][2]netip.Addr `json:"paths,omitempty"`
	// Connections are the MPTCP connections that there were in check: thousands take their time.
	Connections int `json:"connections,omitempty"`
}

// KeepsAddress says whether the guest keeps its address for good. What it has beside its current ones is kept while
// something needs it (Leases).
func (p Plan) KeepsAddress() bool { return p.Network == "tunnel" }

// Landed is the plan with what the guest got, where that is other than was agreed on: by another next address, as
// somebody else has one, or on its old ones, as its handover failed. Empty: as it was agreed on.
func (p Plan) Landed(network string, next []Address) Plan {
	if network != "" {
		p.Network = network
	}
	if len(next) > 0 {
		p.Next = next
	}
	if p.KeepsAddress() {
		p.Next = p.Held
	}
	return p
}

// OwnPath says whether memory takes our own data path.
func (p Plan) OwnPath() bool { return p.Transfer == "lanes" || p.Multipath() }

// Multipath says whether memory takes our own data path over MPTCP.
func (p Plan) Multipath() bool { return p.Transfer == "mptcp" }

// Direct says whether QEMU's own connection leaves the source without our forwarder.
func (p Plan) Direct() bool { return p.Transfer == "qemu-mptcp" || p.Insecure }

// RoleOf is what a host is to the migration.
func (p Plan) RoleOf(host string) Role {
	if p.To == host {
		return AtDestination
	}
	return AtSource
}
