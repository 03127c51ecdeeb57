package agent

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"godwit/agent/peer"
	"godwit/migration"
	"godwit/transfer/pace"
)

// bandwidth is the limit of one migration, over all paths, of memory and disks together; it may be
// changed while that runs. For QEMU's own connections (transfers that do not pass through us) see qemuPart.
type bandwidth struct {
	mu      sync.Mutex
	bits    int64        // bit/s; 0: none
	limiter pace.Limiter // of what passes through us
	apart   int64        // bytes/s of the limit that something else has: QEMU's own connection

	way  int64         // the most while another migration has the right of way, bit/s; 0: none has
	from time.Time     // since when
	gave time.Duration // before that, in all
}

// share is for memory, or for the disks: neither waits behind the other, however many streams that has.
func (b *bandwidth) share() *pace.Share {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tell()
	return b.limiter.Share()
}

// keepApart leaves something else so many bytes per second of the limit, from now on.
func (b *bandwidth) keepApart(bytesPerSecond int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.apart != bytesPerSecond {
		b.apart = bytesPerSecond
		b.tell()
	}
}

func (b *bandwidth) set(bits int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bits = bits
	b.tell()
}

// tell is called with the mutex held.
func (b *bandwidth) tell() {
	most := bytesOf(b.most())
	if most > 0 {
		most = max(1, most-b.apart)
	}
	b.limiter.Set(most)
}

// bytesOf is a limit in bytes; a small one is not none.
func bytesOf(bits int64) int64 { return (bits + 7) / 8 }

// most is the limit that holds now. It is called with the mutex held.
func (b *bandwidth) most() int64 {
	if b.way > 0 && (b.bits == 0 || b.way < b.bits) {
		return b.way
	}
	return b.bits
}

// bytes is the limit that holds now, bytes per second; 0: none.
func (b *bandwidth) bytes() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytesOf(b.most())
}

// giveWay limits it to bits as long as another has the right of way; 0: none has. It returns for
// how long it gave way this time, and whether that is new.
func (b *bandwidth) giveWay(bits int64) (gave time.Duration, changed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch now := time.Now(); {
	case bits == b.way:
		return 0, false
	case b.way == 0:
		b.from = now
	case bits == 0:
		gave = now.Sub(b.from)
		b.gave += gave
	}
	b.way = bits
	b.tell()
	return gave, true
}

// gaveWay says whether it gives way now, and for how long it has, in all.
func (b *bandwidth) gaveWay() (bool, time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.way == 0 {
		return false, b.gave
	}
	return true, b.gave + time.Since(b.from)
}

func (b *bandwidth) get() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bits
}

// Bandwidth asks for a limit of a migration under way.
type Bandwidth struct {
	Bandwidth int64 `json:"bandwidth"` // bit/s over all paths; 0: unlimited
}

func (a *Agent) apiBandwidth(r *http.Request) (any, error) {
	var want Bandwidth
	if err := peer.Decode(r, &want); err != nil {
		return nil, err
	}
	id := r.PathValue("id")
	if want.Bandwidth < 0 {
		return nil, &migration.Problem{Code: migration.CodeUsage, Text: fmt.Sprintf("migration %s: bandwidth of %d bit/s", id, want.Bandwidth)}
	}
	a.mu.Lock()
	m := a.outgoing[id]
	a.mu.Unlock()
	if m == nil {
		return nil, &migration.Problem{Code: migration.CodeUsage, Text: fmt.Sprintf(
			"limit %s: no such migration leaves host %s now; limit it on its source, while it is under way, see `godwit history`", id, a.config.Host)}
	}
	if direct(m.plan) {
		return nil, &migration.Problem{Code: migration.CodeUsage, Text: fmt.Sprintf("migration %s: with transfer %s QEMU sends by itself, and its limit stays", id, m.plan.Transfer)}
	}
	m.bandwidth.set(want.Bandwidth)
	m.rec.note(fmt.Sprintf("bandwidth is limited to %d bit/s now (0: not at all)", want.Bandwidth))
	return nil, nil //nolint:nilnil // done
}
