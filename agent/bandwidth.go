package agent

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"godwit/agent/peer"
	"godwit/migration"
)

// bandwidth is the limit of one migration, over all paths; it may be changed while that
// runs. QEMU's own connections (transfers that do not pass through us) keep the first one.
type bandwidth struct {
	mu      sync.Mutex
	bits    int64 // bit/s; 0: none
	streams []*func(bytesPerSecond int64)

	way  int64         // the most while another migration has the right of way, bit/s; 0: none has
	from time.Time     // since when
	gave time.Duration // before that, in all
}

// follow gives a stream the limit, now and when it changes, until it leaves.
func (b *bandwidth) follow(set func(bytesPerSecond int64)) (leave func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.streams = append(b.streams, &set)
	set(bytesOf(b.most()))
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.streams = slices.DeleteFunc(b.streams, func(s *func(int64)) bool { return s == &set })
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
	for _, set := range b.streams {
		(*set)(bytesOf(b.most()))
	}
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
