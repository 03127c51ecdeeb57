package proxy

import (
	"fmt"
	"sync"
	"time"

	"godwit/transfer/encode"
	"godwit/transfer/encode/mirror"
	"godwit/transfer/encode/visit"
	"godwit/transfer/pages"
	"godwit/transfer/wire"
)

// Guests that come from one host at the same time, or shortly after each other, often hold the
// same: a kernel, libraries, files. What one has brought the others need not bring again.
//
// What is lent is the mirror, the Destination's own copy of what came, never the memory of a guest
// that may run. It changes as frames come: a page that names another guest's carries its SHA-256, and is
// missed where that page has another content when it is copied. Only what came from one host is
// lent for guests of that host, so a Source learns of nothing that its host did not send itself.

// Beside is the guests that come from one host. The zero value is ready. Its methods may be
// called from any goroutine.
type Beside struct {
	mu   sync.Mutex
	last uint32
	lent map[uint32]*loan // by set
}

// loan is a mirror that others may read, and what has come into it. Its methods do nothing where
// it is nil.
type loan struct {
	beside *Beside
	set    uint32
	mirror *mirror.File

	mu    sync.Mutex
	seen  []uint64 // a bit for each page: it is among those that came
	came  []content
	ended bool // no more comes, and the mirror is closed soon
}

// content is a page, and what it was offered by (pages.Fast).
type content struct{ page, hash uint64 }

// lend lets the others read a mirror of so many pages; nil where there are no others.
func (b *Beside) lend(m *mirror.File, total uint64) *loan {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lent == nil {
		b.lent = map[uint32]*loan{}
	}
	b.last = max(b.last+1, encode.FirstPassing)
	l := &loan{beside: b, set: b.last, mirror: m, seen: make([]uint64, (total+63)/64)}
	b.lent[l.set] = l
	return l
}

// others are the loans of other guests.
func (b *Beside) others(own *loan) []*loan {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []*loan
	for _, l := range b.lent {
		if l != own {
			out = append(out, l)
		}
	}
	return out
}

// content reads a page of a set.
func (b *Beside) content(set uint32, index uint64, dst []byte) error {
	if b == nil {
		return fmt.Errorf("no set %d", set)
	}
	b.mu.Lock()
	l := b.lent[set]
	b.mu.Unlock()
	if l == nil {
		return fmt.Errorf("no set %d", set)
	}
	return l.mirror.Peek(index, dst) // fails once it is closed
}

// add notes what a frame brought. Each page is offered once: what is written again is likely to be
// written once more.
func (l *loan) add(arrived []encode.Decoded) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range arrived {
		word, bit := &l.seen[p.Page/64], uint64(1)<<(p.Page%64)
		if p.Data == nil || *word&bit != 0 || len(l.came) >= encode.MostOffered {
			continue
		}
		*word |= bit
		l.came = append(l.came, content{p.Page, pages.Fast(p.Data)})
	}
}

// after returns what came after so many, and whether the loan has ended.
func (l *loan) after(n int) ([]content, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.came[n:], l.ended
}

// end has the others told that they should not ask for it any more. What they have asked for can be
// read until it is taken back.
func (l *loan) end() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
}

// takeBack ends the loan: its mirror is about to be closed.
func (l *loan) takeBack() {
	if l == nil {
		return
	}
	l.beside.mu.Lock()
	defer l.beside.mu.Unlock()
	delete(l.beside.lent, l.set)
}

// besideEvery is how often it is looked for what came for the others.
const besideEvery = 100 * time.Millisecond

// indexBeside offers what the others have, and what comes for them, up to left contents, and tells which of them are
// gone, until the pause: then nothing else is to be done.
func (d *Destination) indexBeside(left int) {
	offered := map[*loan]int{}
	run := visit.Run{Most: wire.MaxOffer, Total: left, Over: left <= 0}
	for !run.Over || len(offered) > 0 {
		for l := range offered {
			if _, ended := l.after(0); ended {
				if !d.offerLater(wire.Offer{Set: l.set}) {
					return
				}
				delete(offered, l)
			}
		}
		if !run.Over {
			d.offerBeside(&run, offered)
		}
		select {
		case <-time.After(besideEvery):
		case <-d.handed:
			return
		case <-d.ctx.Done():
			return
		}
		if d.threads.hurries() {
			return
		}
	}
}

// offerBeside offers what has come since, of which so many are known.
func (d *Destination) offerBeside(run *visit.Run, offered map[*loan]int) {
	for _, l := range d.config.Beside.others(d.lent.Load()) {
		came, ended := l.after(offered[l])
		if ended {
			continue
		}
		run.Yield = func(first uint64, hashes []uint64) bool {
			return d.offerLater(wire.Offer{Set: l.set, First: first, Hashes: hashes})
		}
		for _, c := range came {
			run.Add(c.page, c.hash)
		}
		run.Flush()
		offered[l] += len(came)
	}
}
