// Package transfer carries a hypervisor's own migration streams between two hosts, and
// keeps QEMU from switching over before it is allowed to. It carries disks as well; most of
// what follows is of migration streams.
//
//	source QEMU ─unix─▶ Source ─▶ encrypted streams ─▶ ServeStream ─unix─▶ destination QEMU
//	source QEMU ─(MPTCP over tunnels)────────────────▶ HoldListener ─unix─▶ destination QEMU
//
// # Streams
//
// QEMU opens one connection, the main stream, and with multifd one more per channel when
// the main one stands. They are numbered from 0 in the order in which they are accepted,
// so stream 0 is the main one. Bytes are passed on unchanged, in order, in both directions.
// An end of file is passed on as one (half-close); the stream has ended when both
// directions have. Any other end, an error on either side or a cancelled context, closes
// every stream of the migration within a second, and each QEMU sees a broken connection.
//
// # The hold
//
// The return path runs on the main stream from the destination to the source. It is a
// sequence of messages; package qstream has their format.
//
// With the capability switchover-ack (QEMU 8.1 and later) the source does not finish
// before it has received SWITCHOVER_ACK, which the destination sends when none of its
// devices objects any more, mostly at once. The holding end (Source or HoldListener) keeps
// that message until AllowSwitchover, and passes on everything else. What was allowed cannot
// be taken back. QEMU waits only while the guest runs: a QMP stop ends the hold as well
// (migration_can_switchover).
//
// A message that qstream.ReturnPath does not take is an error; nothing of it is passed on.
// The other streams carry nothing back: a byte there is an error.
//
// # Speed
//
// QEMU estimates the link by how fast we read, so little is buffered here: 64 KiB per
// direction, and 128 KiB unsent in the kernel (TCP_NOTSENT_LOWAT). A bandwidth limit
// counts the bytes towards the destination of all streams together.
//
// # Disks
//
// QEMU's NBD client is joined with the way of the disk that it asks for (ListenNBD): its handshake is answered here
// (package nbd), for each disk once, and what follows is passed on as it is. These streams are equal, and one that
// breaks breaks alone (Plain). A disk that no QEMU serves at the destination is served there by us (ServeDisk).
package transfer

import (
	"fmt"
	"sync/atomic"
	"time"
)

// Side names one end of a forwarded stream, in errors.
type Side string

// The sides of a forwarder.
const (
	QEMU Side = "qemu"
	Peer Side = "peer"
)

// SideError says on which side a stream broke.
type SideError struct {
	Stream int
	Side   Side
	Op     string // connect, read, write
	Err    error
}

func (e *SideError) Error() string {
	return fmt.Sprintf("stream %d: %s %s: %v", e.Stream, e.Op, e.Side, e.Err)
}

func (e *SideError) Unwrap() error { return e.Err }

// Stats are a forwarder's counters so far.
type Stats struct {
	Streams int   // accepted
	Forward int64 // bytes passed from the source towards the destination
	Back    int64 // bytes passed from the destination towards the source
	// Backlog is how many of the bytes from the source wait in this host's sockets. QEMU
	// counts them as sent; a switchover has to wait for them.
	Backlog int64
	// Carried is what the destination's kernel has acknowledged of our connections, with what encryption adds, bytes.
	Carried int64
	// Waited is for how long something from the source waited to be sent, as the paths, or the limit, took no more. It
	// is no time in which QEMU has little to send, or is slow to do it.
	Waited      time.Duration
	Acked       bool // the destination has acknowledged the switchover
	Allowed     bool // AllowSwitchover was called
	AckPassedOn bool // the source has been told: it may finish from now on
}

// counters are shared by the streams of one migration.
type counters struct {
	streams, forward, back atomic.Int64
}
