package pages

import (
	"bytes"
	"math/bits"
)

// index leads from fast hashes to pages whose delivered content has them. It is a cache:
// what it finds is checked, and an entry may be pushed out by another.
type index struct {
	table  []uint32     // page+1, in buckets of ways
	fast   []uint64     // by page, valid where the page is indexed
	ids    [][]Identity // by page, in chunks, valid where the page is identified
	victim uint32
}

const (
	ways    = 4
	idChunk = 4096
)

func (x *index) bucket(fast uint64) []uint32 {
	n := int(fast&uint64(len(x.table)/ways-1)) * ways
	return x.table[n : n+ways]
}

// insert notes that the page, marked as indexed, has the hash. A content that is there with
// another page keeps that one.
func (x *index) insert(s *Store, number, fast uint64) {
	if x.table == nil {
		total := uint64(len(s.pages))
		x.fast = make([]uint64, total)
		x.ids = make([][]Identity, (total+idChunk-1)/idChunk)
		x.table = make([]uint32, max(1<<bits.Len64(total), ways))
	}
	x.fast[number] = fast
	bucket := x.bucket(fast)
	free := -1
	for i, entry := range bucket {
		if entry == 0 {
			free = i
			continue
		}
		other := uint64(entry - 1)
		valid := s.pages[other].is(indexed)
		switch {
		case other == number:
			return
		case valid && x.fast[other] == fast && s.pages[other].landed():
			return
		case !valid || &x.bucket(x.fast[other])[0] != &bucket[0]:
			free = i
		}
	}
	if free < 0 {
		x.victim++
		free = int(x.victim % ways)
	}
	bucket[free] = uint32(number) + 1
}

func (x *index) id(number uint64) *Identity {
	chunk := &x.ids[number/idChunk]
	if *chunk == nil {
		*chunk = make([]Identity, idChunk)
	}
	return &(*chunk)[number%idChunk]
}

// evict gives up the coldest base and returns its slot, 0 if there is none. If Find may find it,
// it does by its identity from now on; where making that takes too long, as the guest stands
// still or its coder hurries (Brief), it does not any more.
func (s *Store) evict() Slot {
	for _, bases := range s.bases {
		number, ok := bases.next(0)
		if !ok {
			continue
		}
		bases.remove(number)
		p := &s.pages[number]
		switch {
		case p.is(identified): // Find goes on by that
		case s.stopped || p.is(brief): // the guest does not wait for hashes
			p.flags &^= indexed
		case p.is(indexed):
			*s.index.id(number) = Identify(s.arena.bytes(p.base))
			p.flags |= identified
		}
		slot := p.base
		p.base = 0
		return slot
	}
	return 0
}

// Find looks for a page that the destination has with this page's content, by its bytes
// or its identity. The page itself is among them (then it is unchanged). Only contents of
// pages that were asked for here can be found later.
func (s *Store) Find(t *Page) (number, version uint64, ok bool) {
	if t.Data == nil {
		return 0, 0, false
	}
	t.fast, t.hashed = Fast(t.Data), true
	if t.Whole {
		return 0, 0, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.index.table == nil {
		return 0, 0, false
	}
	var id *Identity
	if p := &s.pages[t.Number]; t.Landed && s.matches(t.Number, p, t, &id) {
		return t.Number, p.version, true
	}
	for _, entry := range s.index.bucket(t.fast) {
		if entry == 0 || uint64(entry-1) == t.Number {
			continue
		}
		number := uint64(entry - 1)
		p := &s.pages[number]
		if p.landed() && !p.is(waiting) && s.matches(number, p, t, &id) {
			return number, p.version, true
		}
	}
	return 0, 0, false
}

// matches says whether the delivered content of a page is t's. id is t's identity, made
// when it is needed.
func (s *Store) matches(number uint64, p *page, t *Page, id **Identity) bool {
	if !p.is(indexed) || s.index.fast[number] != t.fast {
		return false
	}
	if p.base != 0 {
		return bytes.Equal(s.arena.bytes(p.base), t.Data)
	}
	if !p.is(identified) {
		return false
	}
	if *id == nil {
		made := Identify(t.Data)
		*id = &made
	}
	return *s.index.id(number) == **id
}
