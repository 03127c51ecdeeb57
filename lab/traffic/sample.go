package traffic

import "net/netip"

// Sample is one flow's last 100 ms, or 10 s of a silent one.
type Sample struct {
	Flow string `json:"flow"`
	Kind string `json:"kind"`
	// Time is when the sample was taken, unix ns.
	Time int64 `json:"time"`
	// Bytes and Records were delivered since the flow began (bytes of payload).
	Bytes   int64 `json:"bytes"`
	Records int64 `json:"records"`
	// Mbps is the payload delivered since the last sample, in Mbit/s.
	Mbps float64 `json:"mbps"`
	// Gap is the longest wait between two records of one connection that ended
	// since the last sample, ns; 0 if none ended.
	Gap int64 `json:"gap_ns"`
	// Waiting is how long the connection that waits longest waits now, and WaitingSince when the last record came of the
	// one that waits longest of those that live (unix ns); 0 where unknown, or none lives.
	Waiting      int64 `json:"waiting_ns"`
	WaitingSince int64 `json:"waiting_since"`
	// RTT in ms of the path: as Result.RTT, the median since the last sample.
	// StreamRTT is what the application saw, KernelRTT the kernel's figure.
	// Null if there was none.
	RTT       *float64 `json:"rtt_ms"`
	StreamRTT *float64 `json:"stream_rtt_ms"`
	KernelRTT *float64 `json:"kernel_rtt_ms"`
	// Connections that the flow has, and of them Alive: not ended by an error;
	// MPTCP counts those that speak it now.
	Connections int `json:"connections"`
	Alive       int `json:"alive"`
	MPTCP       int `json:"mptcp"`
	// Totals since the flow began. Retransmits are of both sides' kernels,
	// as far as the guest's last answer to a ping told.
	Retransmits int64 `json:"retransmits"`
	Lost        int64 `json:"lost"`
	Repeated    int64 `json:"repeated"`
	Corrupt     int64 `json:"corrupt"`
	// Remotes counts the connections with an established subflow to an address.
	Remotes map[netip.Addr]int `json:"remotes,omitempty"`
	// Subflows of the first connections (at most 8 of them).
	Subflows []Subflow `json:"subflows,omitempty"`
}

// Subflow is one path of one connection.
type Subflow struct {
	// Connection counts from 0 within the flow.
	Connection  int            `json:"connection"`
	Local       netip.AddrPort `json:"local"`
	Remote      netip.AddrPort `json:"remote"`
	Established bool           `json:"established"`
	// RTT in ms by the client's kernel, 0 if unknown.
	RTT         float64 `json:"rtt_ms"`
	Retransmits int64   `json:"retransmits"`
	// Sent and Received are payload bytes since the subflow began.
	Sent     uint64 `json:"sent"`
	Received uint64 `json:"received"`
}

// shownConnections is how many connections' subflows a sample lists.
const shownConnections = 8
