package guest

import (
	"net/netip"
	"slices"
	"time"
)

// Event is something that a guest says unasked.
type Event struct {
	Name string `json:"event,omitempty"`
	// tick: the guest executed at its monotonic time MonoNS. N counts by one, in
	// guest memory: it goes on where it was after a migration.
	N      uint64 `json:"n,omitempty"`
	MonoNS int64  `json:"mono_ns,omitempty"`
	// join: how far an AwaitJoin is. Call is its request's id.
	Call   string `json:"call,omitempty"`
	Total  int    `json:"total,omitempty"`
	Joined int    `json:"joined,omitempty"`
	// At is when the client here read it; it does not travel.
	At time.Time `json:"-"`
}

// Names of events.
const (
	EventTick  = "tick"
	EventJoin  = "join"
	EventBegun = "begun" // the guest's program has just been started: what one before it was asked, nobody answers
)

// NIC is a network interface of the guest.
type NIC struct {
	Name  string         `json:"name"`
	MAC   string         `json:"mac"`
	Up    bool           `json:"up"`
	Addrs []netip.Prefix `json:"addrs,omitempty"`
	// Temporary are those of Addrs that it has for a while only, for what it begins itself (RFC 8981); programs of
	// before do not say.
	Temporary []netip.Addr `json:"temporary,omitempty"`
	// NoIPv6 is set where the kernel has none, or it is turned off for this NIC (disable_ipv6).
	NoIPv6 bool `json:"no_ipv6,omitempty"`
	// Above is set where it is none itself and lies over others: a bridge, a VLAN, a bond.
	Above bool `json:"above,omitempty"`
	// Part is set where it is a part of such a device, which takes what comes in by it.
	Part bool `json:"part,omitempty"`
}

// KindsAbove are the kinds of devices, by rtnetlink's names, that lie over NICs and take their place.
var KindsAbove = []string{"bridge", "vlan", "bond", "team", "openvswitch"}

// Info describes a guest.
type Info struct {
	Protocol     int      `json:"protocol"`
	BootID       string   `json:"boot_id"`
	Kernel       string   `json:"kernel"`
	UptimeMS     int64    `json:"uptime_ms"`
	NICs         []NIC    `json:"nics"`
	MPTCP        bool     `json:"mptcp"`
	Subflows     uint32   `json:"mptcp_subflows"`
	AddrAccepted uint32   `json:"mptcp_add_addr_accepted"`
	Capabilities []string `json:"capabilities"` // the methods it has
	// Unread is what data may take that came and waits for a reader; nil where it is not known.
	Unread *Unread `json:"unread,omitempty"`
}

// Unread bounds what data takes that came by TCP and that nobody has read yet, in bytes.
type Unread struct {
	Used  int64 `json:"used"`  // now, by all of TCP
	Limit int64 `json:"limit"` // beyond it the guest's kernel drops what comes (net.ipv4.tcp_mem)
	// Grown is what may wait in the receive buffers that grew, of so many MPTCP connections.
	Grown       int64 `json:"grown"`
	Connections int   `json:"connections"`
}

// Configure gives a NIC its addresses.
//
// For each address: the NIC (by MAC) is up with it (IPv6 without duplicate address
// detection), and packets from it are routed by Table: its own subnet on the link,
// all else by the family's gateway (taken as on the link, whatever its subnet).
// With Main, sockets that are not bound go out there too. With Endpoint, the first
// address of each family is announced to the peers of open MPTCP connections: IPv4
// with that id, IPv6 with the next one (so ids are handed out in pairs; never use
// one again for the same connections), or by a later pair where others' endpoints have
// these: Configured says by which. At the end the LAN hears of the addresses
// (gratuitous ARP, unsolicited neighbour advertisement).
type Configure struct {
	MAC        string         `json:"mac"`
	Addrs      []netip.Prefix `json:"addrs"`
	GatewayV4  netip.Addr     `json:"gateway_v4"`
	GatewayV6  netip.Addr     `json:"gateway_v6"`
	Table      int            `json:"table"`
	Endpoint   uint8          `json:"endpoint,omitempty"` // 0: none
	Main       bool           `json:"main,omitempty"`
	TxQueueLen int            `json:"tx_queue_len,omitempty"` // packets; 0: as it is
	MTU        int            `json:"mtu,omitempty"`          // bytes; 0: as it is; a NIC that cannot keeps its own
	// Announce are the addresses to announce instead, one of a family, where a NAT
	// stands before the guest; needs CapAnnounce. Families without one announce Addrs'.
	Announce []netip.Addr `json:"announce,omitempty"`
}

// FirstTable is the first of the routing tables in guests that are ours: Tables for NICs by
// turns, and as many, 1000 further on, for addresses that NICs keep. Numbers that people
// pick are lower. Guests of older agents have 100 to 900 and 1100 to 1900.
const (
	FirstTable = 26368
	Tables     = 800
)

// RuleProtocol marks the policy rules that lead packets from an address to such a table as ours
// (rtnetlink's FRA_PROTOCOL; the hosts' routes have the same). Those of older programs have none.
const RuleProtocol = 0x67

// PortEcho is that of the echo server in guests, which probers ask: that is nobody's use of an address, and not counted
// (Users.UDPCount).
const PortEcho = 7007

// CapAnnounce is the capability to announce other addresses than the guest's own.
const CapAnnounce = "configure.announce"

// CapReady is the capability to do beforehand, unnoticed, most of what Configure does.
const CapReady = "ready"

// CapTell is the capability to tell peers of an address that a NIC was made ready for, before the guest leaves for
// where that is.
const CapTell = "tell"

// Configured is what Configure made.
type Configured struct {
	Device      string  `json:"device"`
	EndpointIDs []uint8 `json:"endpoint_ids,omitempty"`
}

// AwaitJoin waits for MPTCP connections to follow to a new address.
type AwaitJoin struct {
	Addrs    []netip.Addr `json:"addrs"` // new
	Old      []netip.Addr `json:"old"`
	LimitMS  int64        `json:"limit_ms"`
	SpareIDs []uint8      `json:"spare_ids,omitempty"` // endpoint ids for announcing again
}

// Joins is AwaitJoin's outcome. Total = Joined + Ended + len(Unable) + Omitted.
type Joins struct {
	Total    int      `json:"total"`  // connections that had a subflow on an old address
	Joined   int      `json:"joined"` // have an established subflow on a new one
	Ended    int      `json:"ended"`  // ended meanwhile
	Unable   []Unable `json:"unable,omitempty"`
	Omitted  int      `json:"omitted,omitempty"` // unable, but not listed
	WaitedMS int64    `json:"waited_ms"`
	LastMS   int64    `json:"last_ms,omitempty"` // how long before the answer the last one joined; 0: not known
	// Endpoints are the ids that were used up by announcing again: to be named to
	// Retire at the next move.
	Endpoints []uint8 `json:"endpoints,omitempty"`
}

// Since is j for all of a handover, of which before is an earlier try; nil: there was none. What had joined by then,
// and whose subflows on the old addresses were closed since, is none of j's. What had not, and has none there any more,
// has ended.
func (j Joins) Since(before *Joins) *Joins {
	if before == nil {
		return &j
	}
	behind := len(j.Unable) + j.Omitted
	j.Ended += before.Ended
	rest := max(j.Joined, before.Total-j.Ended-behind)
	j.Joined = min(rest, before.Joined+j.Joined)
	j.Ended += rest - j.Joined
	j.Total = j.Joined + j.Ended + behind
	kept := slices.DeleteFunc(slices.Clone(before.Endpoints), func(id uint8) bool { return slices.Contains(j.Endpoints, id) })
	j.Endpoints = append(kept, j.Endpoints...)
	return &j
}

// Unable is a connection that stays on its old address.
type Unable struct {
	Local  netip.AddrPort `json:"local"`
	Remote netip.AddrPort `json:"remote"`
	Why    string         `json:"why"`
}

// Retire takes addresses from a NIC that is no longer wanted.
//
// Endpoints of the addresses (all of them, and those named, unless another NIC has their
// address) and id 0 are withdrawn,
// so that MPTCP connections close their subflows there. Without Keep the addresses
// go. With Keep they move to the NIC NewMAC as host addresses with their own source
// route (KeepTable) by KeepGatewayV4 or KeepGatewayV6, or that NIC's gateway.
//
// Then the NIC goes down, unless Stay. With Keep it may stay up for the IPv4 addresses, answering nobody, until they
// are dropped: for servers that name the NIC by which they answer (IP_PKTINFO), as those of QUIC do; by GatewayV4, or,
// where none is named, the NIC's own. To lose nothing to a kept address: call with Keep and Stay (both NICs now answer
// for it), lead the host's neighbour entries to NewMAC, and call again without Stay. Called again with other gateways,
// kept addresses take those.
type Retire struct {
	Addrs         []netip.Addr `json:"addrs"`
	MAC           string       `json:"mac"`
	NewMAC        string       `json:"new_mac"`
	EndpointIDs   []uint8      `json:"endpoint_ids,omitempty"`
	Keep          bool         `json:"keep,omitempty"`
	Stay          bool         `json:"stay,omitempty"`
	KeepTable     int          `json:"keep_table,omitempty"` // 0: 1000 + the NIC's own table
	KeepGatewayV4 netip.Addr   `json:"keep_gateway_v4"`
	KeepGatewayV6 netip.Addr   `json:"keep_gateway_v6"`
	GatewayV4     netip.Addr   `json:"gateway_v4"` // of the NIC that retires
}

// Socket is one user of an address.
type Socket struct {
	Local  netip.AddrPort `json:"local"`
	Remote netip.AddrPort `json:"remote"`
	State  string         `json:"state,omitempty"`
}

// Users says who needs some addresses.
type Users struct {
	MPTCP    int      `json:"mptcp"`             // connections with a live subflow there
	Dialled  int      `json:"dialled,omitempty"` // of MPTCP, that the guest itself opened; see WhyDialled
	TCP      int      `json:"tcp"`               // plain TCP connections, half closed ones included
	Outward  int      `json:"outward,omitempty"` // of TCP, see Connection
	Opening  int      `json:"opening,omitempty"` // of TCP, handshakes that wait for their third packet: what they will be is not known
	UDP      int      `json:"udp"`               // connected UDP sockets
	Sockets  []Socket `json:"sockets,omitempty"`
	UDPCount uint64   `json:"udp_count"` // UDP datagrams to them so far; 0 where not metered
	// Uncounted is why some, or all, of these are not counted; "": they are, or it is not known.
	Uncounted string `json:"udp_uncounted,omitempty"`
}

// Exec runs a shell command in the guest.
type Exec struct {
	Command   string `json:"command"`
	TimeoutMS int64  `json:"timeout_ms"` // 0: ten seconds
}

// ExecLimit bounds each output of a command, bytes; what exceeds it is dropped.
const ExecLimit = 64 << 10

// Executed is a command's outcome.
type Executed struct {
	Exit     int    `json:"exit"` // -1 if it was killed
	Stdout   string `json:"stdout"`
	Stderr   string `json:"stderr"`
	TimedOut bool   `json:"timed_out,omitempty"`
}

// Verified is the state of all dirty and disk areas.
type Verified struct {
	Areas   int      `json:"areas"`
	Pages   int64    `json:"pages"`
	Corrupt int64    `json:"corrupt"`
	First   string   `json:"first,omitempty"` // the first corrupt page
	Writes  uint64   `json:"writes"`          // pages written since the start
	Late    uint64   `json:"late"`            // writes given up since the rate could not be kept
	Errors  []string `json:"errors,omitempty"`
}

// MostMetered is how many entries of Meter a guest lists at most: so many fit into a line of its channel. Where there
// are as many, more may be missing.
const MostMetered = 4000

// Metered counts packets between two addresses as they are on the wire.
type Metered struct {
	Device  string     `json:"device"`
	Out     bool       `json:"out"`
	Src     netip.Addr `json:"src"`
	Dst     netip.Addr `json:"dst"`
	Proto   uint8      `json:"proto"`
	Port    uint16     `json:"port,omitempty"` // UDP destination
	Packets uint64     `json:"packets"`
}

// Counters are what the guest's own meters counted, and its loads.
type Counters struct {
	Meter []Metered `json:"meter,omitempty"`
	// MeterError says why there is no Meter.
	MeterError string `json:"meter_error,omitempty"`
	// Start is another number with each start of the guest's program, as its counts begin anew. 0: it does not say.
	Start uint64 `json:"start,omitempty"`
	// Wrote is how many pages the loads of a lab's guest have written so far. 0: it has none that count.
	Wrote uint64 `json:"wrote,omitempty"`
}
