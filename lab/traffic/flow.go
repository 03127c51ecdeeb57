// Package traffic measures what a client of a guest feels.
//
// A Client is a process in a client's network namespace. It runs flows (Flow)
// against the services of package serve inside the guest, reports every 100 ms
// (Sample) and at the end (Result): which connections survived, every wait
// between two records, throughput, round trips, and each record lost, repeated
// or corrupt. A Prober asks the guest for a UDP echo every 10 ms and knows the
// longest time without an answer.
//
// All times are unix nanoseconds, taken from the monotonic clock since the
// process began, so that one machine's processes can be lined up.
//
// The child process speaks JSON lines: a command on stdin, a message on stdout.
// It ends when its stdin closes.
package traffic

import (
	"cmp"
	"fmt"
	"net/netip"
	"time"

	"godwit/lab/traffic/record"
)

// Kinds of a flow.
const (
	Ticks    = "ticks"    // guest → client, numbered, one per interval
	Download = "download" // guest → client, patterned bytes
	Upload   = "upload"   // client → guest, patterned bytes, each record acknowledged
	Requests = "requests" // client asks, guest answers, one at a time
	UDP      = "udp"      // client → guest, numbered, counted in the guest
	Iperf3   = "iperf3"   // client → guest, Debian's iperf3
	Exec     = "exec"     // a shell command in the client's namespace, with $GUEST set
)

// Flow is one line of a scenario's traffic.
type Flow struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
	// Target is the guest's address when the flow starts.
	Target netip.Addr `json:"target"`
	// Every is the time between two ticks, requests or datagrams of a connection; 0 is what
	// Rate asks for (ticks, requests), else 10 ms.
	Every time.Duration `json:"every_ns,omitempty"`
	// Rate in bit/s of records, of all connections together; 0 is as fast as it goes, for
	// ticks, requests and udp one record per Every. A command (exec) goes its own way.
	Rate int64 `json:"rate,omitempty"`
	// Connections of this flow at the same time; 0 is 1.
	Connections int `json:"connections,omitempty"`
	// Silent connections say nothing between their records: they are not pinged, and what was heard of
	// them is as old as their last record. Of ticks and requests.
	Silent bool `json:"silent,omitempty"`
	// MPTCP asks for MPTCP; whether it was negotiated is in Result.MPTCP.
	MPTCP bool `json:"mptcp,omitempty"`
	// Command is what kind exec runs.
	Command string `json:"command,omitempty"`
	// Port is where the guest's iperf3 listens, which serves one client at a time; 0 is
	// PortIperf3. Other kinds have ports of their own.
	Port uint16 `json:"port,omitempty"`
}

// PortIperf3 is iperf3's own.
const PortIperf3 uint16 = 5201

const (
	defaultEvery = 10 * time.Millisecond
	leastEvery   = 100 * time.Microsecond
	mostEvery    = 24 * time.Hour
	mostConns    = 20000
	tickSize     = 64
	askSize      = 100
	answerSize   = 1 << 10
	fullRateSize = 16 << 10
	pacedRecord  = 5 * time.Millisecond
)

// check fills defaults and refuses what no client can run.
func (f *Flow) check() error {
	if f.Connections == 0 {
		f.Connections = 1
	}
	if f.Every == 0 {
		f.Every = defaultEvery
		if f.Rate > 0 && (f.Kind == Ticks || f.Kind == Requests) {
			f.Every = min(max(apart(f.size(), f.each()), leastEvery), mostEvery)
		}
	}
	switch {
	case f.Name == "":
		return fmt.Errorf("start traffic: no name")
	case f.Every < leastEvery || f.Every > mostEvery:
		return fmt.Errorf("start traffic %s: every %v is not 100us to 24h", f.Name, f.Every)
	case f.Rate < 0:
		return fmt.Errorf("start traffic %s: rate %d is negative", f.Name, f.Rate)
	case f.Connections < 0 || f.Connections > mostConns:
		return fmt.Errorf("start traffic %s: connections %d is not 1 to %d", f.Name, f.Connections, mostConns)
	case f.Kind == Exec && f.Command == "":
		return fmt.Errorf("start traffic %s: no command", f.Name)
	case f.Kind != Exec && !f.Target.IsValid():
		return fmt.Errorf("start traffic %s: no target address", f.Name)
	}
	f.Target = f.Target.Unmap()
	return nil
}

// size is a record's payload in bytes: at a given rate about 5 ms of it, so
// that waits between records stay small beside the gaps worth measuring.
func (f *Flow) size() int {
	switch f.Kind {
	case Ticks:
		return tickSize
	case Requests:
		return answerSize
	}
	if f.Rate == 0 {
		return fullRateSize
	}
	bytes := f.each() / 8 * int64(pacedRecord) / int64(time.Second)
	return int(min(max(bytes, 256), record.MaxPayload))
}

// each is the rate of one connection, bit/s; 0 is as fast as it goes.
func (f *Flow) each() int64 {
	if f.Rate == 0 {
		return 0
	}
	return max(1, f.Rate/int64(max(1, f.Connections)))
}

// apart is the time between two records of a size, bytes, at a rate, bit/s.
func apart(size int, rate int64) time.Duration {
	return max(time.Duration(float64(size*8)/float64(rate)*float64(time.Second)), time.Microsecond)
}

// unpaced tells whether only the network bounds the flow.
func (f *Flow) unpaced() bool {
	return f.Rate == 0 && (f.Kind == Download || f.Kind == Upload)
}

// port of the guest's service.
func (f *Flow) port() uint16 {
	switch f.Kind {
	case Ticks:
		return record.PortTicks
	case Download:
		return record.PortDownload
	case Upload:
		return record.PortUpload
	case Requests:
		return record.PortRequests
	case UDP:
		return record.PortUDP
	case Iperf3:
		return cmp.Or(f.Port, PortIperf3)
	}
	return 0
}
