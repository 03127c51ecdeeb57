// Package uplinks is what migrations share that are under way on a host at the same time, of its ways to the
// outside: how much each may send (Limit, Part), which of them goes first (RightOfWay), what is sent (Meters) and whose of those
// bytes are (WireShares), and the addresses that the kernel's MPTCP knows for them (Endpoints). It knows migrations by
// their ids alone; the zero value of each is ready for use, by many. Of one migration alone are what it has sent (Wire), and what its paths carry (Goodput).
package uplinks

import (
	"sync"
	"time"

	"godwit/transfer/pace"
)

// Limit is the limit of bandwidth of one migration, over all paths, of memory and disks together; it may be
// changed while that runs. For QEMU's own connections (transfers that do not pass through us) it is
// what they are told; see KeepApart. The zero value has no limit.
type Limit struct {
	mu      sync.Mutex
	bits    int64        // bit/s; 0: none
	limiter pace.Limiter // of what passes through us
	apart   int64        // bytes/s of the limit that something else has: QEMU's own connection

	way  int64     // the most while another migration has the right of way, bit/s; 0: none has
	from time.Time // since when
}

// Share is for memory, or for the disks: neither waits behind the other, however many streams that has.
func (b *Limit) Share() *pace.Share {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tell()
	return b.limiter.Share()
}

// KeepApart leaves something else so many bytes per second of the limit, from now on.
func (b *Limit) KeepApart(bytesPerSecond int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.apart != bytesPerSecond {
		b.apart = bytesPerSecond
		b.tell()
	}
}

// Set limits it to so many bit/s from now on; 0: to nothing.
func (b *Limit) Set(bits int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bits = bits
	b.tell()
}

// tell is called with the mutex held.
func (b *Limit) tell() {
	most := bytesOf(b.most())
	if most > 0 {
		most = max(1, most-b.apart)
	}
	b.limiter.Set(most)
}

// bytesOf is a limit in bytes; a small one is not none.
func bytesOf(bits int64) int64 { return (bits + 7) / 8 }

// most is the limit that holds now. It is called with the mutex held.
func (b *Limit) most() int64 {
	if b.way > 0 && (b.bits == 0 || b.way < b.bits) {
		return b.way
	}
	return b.bits
}

// Bytes is the limit that holds now, bytes per second; 0: none.
func (b *Limit) Bytes() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytesOf(b.most())
}

// GiveWay limits it to bit/s as long as another has the right of way; 0: none has. It returns for
// how long it gave way this time, and whether that is new.
func (b *Limit) GiveWay(bits int64) (gave time.Duration, changed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch now := time.Now(); {
	case bits == b.way:
		return 0, false
	case b.way == 0:
		b.from = now
	case bits == 0:
		gave = now.Sub(b.from)
	}
	b.way = bits
	b.tell()
	return gave, true
}

// GivesWay says whether it gives way now.
func (b *Limit) GivesWay() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.way > 0
}

// Bits is the limit that was set, bit/s, whether or not it gives way; 0: none.
func (b *Limit) Bits() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bits
}
