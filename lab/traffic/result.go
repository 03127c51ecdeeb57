package traffic

import (
	"net/netip"
	"time"
)

// Result is what a flow was, from its first record to Stop.
type Result struct {
	Flow Flow `json:"flow"`
	// Start and End of the flow, unix ns: it began to connect; Stop was asked for.
	Start int64 `json:"start"`
	End   int64 `json:"end"`
	// Connected is how long it took until all its connections were accepted.
	Connected time.Duration `json:"connected_ns,omitempty"`
	// Survived: every connection did. For exec: it still ran, or exited with 0.
	Survived bool `json:"survived"`
	// MPTCP: every connection really negotiated it and had not fallen back when last looked at.
	MPTCP       bool         `json:"mptcp"`
	Connections []Connection `json:"connections,omitempty"`
	// Totals. Bytes are payload delivered: at the client, or for upload
	// acknowledged by, and for udp counted in, the guest.
	Bytes       int64 `json:"bytes"`
	Records     int64 `json:"records"`
	Lost        int64 `json:"lost"`
	Repeated    int64 `json:"repeated"`
	Corrupt     int64 `json:"corrupt"`
	Retransmits int64 `json:"retransmits"`
	// Buckets are the bytes delivered in each Bucket of time since Start, or, where the flow ran
	// for hours, in each Wide of them.
	Buckets []uint32 `json:"buckets,omitempty"`
	Wide    int64    `json:"wide,omitempty"`
	// RTTs in the order of their times: what the application saw, queues in
	// front of it included.
	RTTs []RTT `json:"rtts,omitempty"`
	// KernelRTTs are the smoothed round trips by the kernel of the side that sends, ten per second at most:
	// of the first connection that lives, or, where the guest sends, of the one that it told of last, within a second.
	KernelRTTs []RTT `json:"kernel_rtts,omitempty"`
	// GapUnknown says why Gap knows nothing; empty where it does.
	GapUnknown string `json:"gap_unknown,omitempty"`
	// RTTUnknown says why RTT knows nothing.
	RTTUnknown string `json:"rtt_unknown,omitempty"`
	// LostUnknown says why Lost is only a bound; empty where it is a count (udp).
	LostUnknown string `json:"lost_unknown,omitempty"`
	// GuestGap is the longest time between two datagrams by the guest's own
	// clock, which may stand still while the guest is paused (udp).
	GuestGap time.Duration `json:"guest_gap_ns,omitempty"`
	// Late datagrams came after one with a higher number (udp).
	Late int64 `json:"late,omitempty"`
	// Holes are where datagrams are missing, in order (udp).
	Holes []Hole `json:"holes,omitempty"`
	// SendError says of which datagram first, when and why the client's kernel did not take it (udp).
	SendError string `json:"send_error,omitempty"`
	// Output is the end of what the command wrote (exec, iperf3).
	Output string `json:"output,omitempty"`
}

// Connection is one connection of a flow.
type Connection struct {
	// Survived: the same socket still delivered at the end.
	Survived bool `json:"survived"`
	MPTCP    bool `json:"mptcp"`
	// First is the address that was connected to; Remotes those with an
	// established subflow at the end. Moved: there are such, and First is none of them.
	First   netip.Addr   `json:"first"`
	Remotes []netip.Addr `json:"remotes,omitempty"`
	Moved   bool         `json:"moved"`
	// Local and Peer are its ends as it was connected, which the guest knows it by. Neither is known of
	// another program's connection.
	Local netip.AddrPort `json:"local,omitzero"`
	Peer  netip.AddrPort `json:"peer,omitzero"`
	// Waits between records, in order; shorter ones than MinWait (ns) are left out.
	Waits   []Wait `json:"waits,omitempty"`
	MinWait int64  `json:"min_wait_ns"`
	// Begun and Last are when the first and the last record came, unix ns; 0: none did.
	Begun int64 `json:"begun"`
	Last  int64 `json:"last"`
	// Heard is when anything came last, such as the answer to a ping; Ended when the socket ended by
	// itself. Unix ns; 0: never, or not known.
	Heard int64 `json:"heard,omitempty"`
	Ended int64 `json:"ended,omitempty"`
	// Retransmits of both sides' kernels, all subflows.
	Retransmits int64 `json:"retransmits"`
	// Error is what ended the connection before Stop.
	Error string `json:"error,omitempty"`
}

// Hole is some datagrams that were not counted when later ones were.
type Hole struct {
	// Lost of those numbered From to To, without To.
	Lost int64  `json:"lost"`
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
	// Since and Until are when the first and the last of these were sent, unix ns; 0 is not known.
	Since int64 `json:"since"`
	Until int64 `json:"until"`
}

// Wait is a time in which a connection delivered nothing.
type Wait struct {
	From   int64 `json:"f"` // unix ns
	Length int64 `json:"l"` // ns
}

// RTT is one round trip.
type RTT struct {
	Time  int64 `json:"t"` // when it ended, unix ns
	Micro int64 `json:"u"` // µs
}

// Bucket is the width of Result.Buckets, where they are not wider.
const Bucket = 10 * time.Millisecond
