package pages

import (
	"bytes"
	"fmt"
	"math"
	"sync"
)

// Store holds what waits, what is in flight and what was delivered. Its methods may be
// called from any goroutine. Put and Take wait for the spill; none waits for another that does.
type Store struct {
	ready, room chan struct{}

	mu    sync.Mutex
	arena *Arena
	pages []page
	err   error // of the arena, for good

	ended, stopped, postCopy bool

	skip       int
	settleFrom uint64                 // see Settle: a page of this frame or a later one is held back; 0: none is
	settleMost uint64                 // how many are held back at most
	hold       bool                   // see Hold
	refused    bool                   // Put was refused since there was last room
	knows      func(data []byte) bool // see Foresee; nil: nothing is known

	wait     [Classes]*set // pages with content that may be taken, by heat
	zeros    *set          // zero pages that may be taken
	blocked  *set          // pages that wait for their own older frame
	heldBack *set          // pages that wait for Stop, see Settle
	urgent   []uint64

	// In post-copy, see postcopy.go.
	near     []uint64       // areas with a page that was urgent
	around   []surroundings // of those areas
	hot      [][]uint64     // what waits and is hot, as post-copy takes it
	cold     []uint64       // what waits and is not
	ordered  bool           // hot and cold were made
	ordering *ordering      // nil: they are not being made

	frames map[uint64]*Frame // unacknowledged
	last   uint64            // number of the last frame taken

	bases [Classes]*set // pages whose delivered content is in memory, by heat
	index index

	lastPut uint64
	counts  Progress

	span      uint16 // see Rewritten
	rewritten uint64
}

// page is what a store knows of one page.
type page struct {
	version uint64 // what the destination has; 0: nothing
	last    uint64 // the last frame that it was taken for
	slot    Slot   // what waits, unless that is zero
	base    Slot   // content of version, if kept
	flight  uint16 // unacknowledged frames with it
	heat    uint8
	flags   flags
	span    uint16 // in which it was last counted as rewritten; 0: in none
}

type flags uint16

const (
	seen       flags = 1 << iota // was put
	waiting                      // a version waits
	waitsZero                    // and is zeros
	whole                        // and is to be sent whole
	hasZero                      // version is zeros
	indexed                      // Find may find version
	identified                   // its identity is kept
	brief                        // it is not, when the content goes
	hastened                     // is among those that are urgent
	nearby                       // and its area among those that are near
	foreseen                     // what waits is the first version, and known elsewhere
)

func (p *page) is(f flags) bool { return p.flags&f != 0 }

// landed: the destination has version and will have no other, as far as was sent.
func (p *page) landed() bool { return p.flight == 0 && p.version > 0 }

// New makes a store for a guest of total pages whose contents live in the arena.
func New(total uint64, arena *Arena) *Store {
	s := &Store{
		ready: make(chan struct{}, 1), room: make(chan struct{}, 1),
		arena: arena, pages: make([]page, total), zeros: newSet(total), blocked: newSet(total), heldBack: newSet(total),
		frames: map[uint64]*Frame{}, lastPut: math.MaxUint64, span: 1,
	}
	for c := range Classes {
		s.wait[c], s.bases[c] = newSet(total), newSet(total)
	}
	return s
}

// Total is how many pages the guest has.
func (s *Store) Total() uint64 { return uint64(len(s.pages)) }

// Put adds the newest version of a page; data is copied, nil is a page of zeros. ErrFull
// says that nothing was added: call again when Room says so. After End or Stop,
// it is never ErrFull; an error of the spill file is returned, and the store is of no more use.
func (s *Store) Put(number uint64, data []byte) error {
	if number >= uint64(len(s.pages)) {
		return fmt.Errorf("page %d of %d", number, len(s.pages))
	}
	if data != nil && len(data) != Size {
		return fmt.Errorf("page %d has %d bytes, not %d", number, len(data), Size)
	}
	if data != nil && isZero(data) {
		data = nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	p := &s.pages[number]
	unchanged := s.unchanged(p, data)
	if !unchanged {
		if err := s.place(p, data); err != nil {
			return err
		}
	}
	s.countRound(number)
	if unchanged {
		s.counts.Unchanged++
		return nil
	}
	s.warm(number, p)
	s.countRewritten(p)
	if p.is(waiting) {
		s.counts.Superseded++
		s.unqueue(number, p)
	}
	known := !p.is(seen) && data != nil && s.knows != nil && s.knows(data)
	p.flags |= seen | waiting
	p.flags &^= waitsZero | foreseen // one that was missed stays whole: the destination waits for it, whatever it had before
	if data == nil {
		p.flags |= waitsZero
	}
	if known {
		p.flags |= foreseen
	}
	s.queue(number, p)
	return nil
}

// unchanged says whether data is what waits, or what the destination has.
func (s *Store) unchanged(p *page, data []byte) bool {
	slot, zero := p.slot, p.is(waitsZero)
	if !p.is(waiting) {
		if !p.landed() {
			return false
		}
		slot, zero = p.base, p.is(hasZero)
	}
	if zero || data == nil {
		return zero && data == nil
	}
	content := s.arena.bytes(slot)
	return content != nil && bytes.Equal(content, data)
}

// place copies data to the page's slot. It gets one if it has none, and another if that is in the spill: the content there
// may be taken while this is written.
func (s *Store) place(p *page, data []byte) error {
	if data == nil {
		s.release(&p.slot)
		return nil
	}
	if memory := s.arena.bytes(p.slot); memory != nil {
		copy(memory, data)
		return nil
	}
	slot, err := s.allocate()
	if err != nil {
		return s.fail(err)
	}
	if slot == 0 {
		s.refused = true
		signal(s.ready) // what Skip kept may go now
		return ErrFull
	}
	if err := s.write(slot, data); err != nil {
		return s.fail(err)
	}
	s.release(&p.slot)
	p.slot = slot
	return nil
}

// write fills a slot that nobody else knows of. Where it is in the spill, the store is unlocked meanwhile: a disk may take
// its time, and acknowledgements, on which lanes hang, cannot wait for it.
func (s *Store) write(slot Slot, data []byte) error {
	if memory := s.arena.bytes(slot); memory != nil {
		copy(memory, data)
		return nil
	}
	s.mu.Unlock()
	defer s.mu.Lock()
	return s.arena.spillOut(slot, data)
}

// allocate returns a slot: free, that of the coldest base, or in the spill; 0 if there is
// none.
func (s *Store) allocate() (Slot, error) {
	slot, err := s.arena.allocate()
	if slot != 0 || err != nil {
		return slot, err
	}
	if slot := s.evict(); slot != 0 {
		return slot, nil
	}
	if !s.ended {
		return 0, nil
	}
	if slot := s.arena.allocateFar(); slot != 0 {
		return slot, nil
	}
	return 0, fmt.Errorf("%w, and there is no spill file", ErrFull)
}

func (s *Store) release(slot *Slot) {
	if *slot == 0 {
		return
	}
	s.arena.release(*slot)
	*slot = 0
	if s.refused {
		s.refused = false
		signal(s.room)
	}
}

func (s *Store) fail(err error) error {
	if err != nil && s.err == nil {
		s.err = err
	}
	return err
}

// queue makes a waiting page available, unless its own older frame is under way.
func (s *Store) queue(number uint64, p *page) {
	s.counts.Waiting++
	if p.is(foreseen) {
		s.counts.Known++
	}
	if p.flight > 0 && !s.stopped {
		s.blocked.add(number)
		return
	}
	s.available(number, p)
}

// available makes a waiting page available, unless it is held back.
func (s *Store) available(number uint64, p *page) {
	if s.holdsBack(p) {
		s.heldBack.add(number)
		return
	}
	s.queueOf(p).add(number)
	signal(s.ready)
}

func (s *Store) unqueue(number uint64, p *page) {
	s.counts.Waiting--
	if p.is(foreseen) {
		s.counts.Known--
	}
	s.blocked.remove(number)
	s.heldBack.remove(number)
	s.zeros.remove(number)
	s.wait[classOf(p.heat)].remove(number)
}

// unblock makes a page available that was blocked, once no older frame with it is in flight.
func (s *Store) unblock(number uint64, p *page) {
	if p.flight == 0 && s.blocked.has(number) {
		s.blocked.remove(number)
		s.available(number, p)
	}
}

// queueOf is the set in which a page waits that may be taken.
func (s *Store) queueOf(p *page) *set {
	if p.is(waitsZero) {
		return s.zeros
	}
	return s.wait[classOf(p.heat)]
}

// warm counts that a page was put with a new content.
func (s *Store) warm(number uint64, p *page) {
	if !p.is(seen) {
		s.counts.Heat[0]++
		return
	}
	if p.heat == math.MaxUint8 {
		return
	}
	from, to := classOf(p.heat), classOf(p.heat+1)
	p.heat++
	if from == to {
		return
	}
	s.counts.Heat[from]--
	s.counts.Heat[to]++
	for _, sets := range []*[Classes]*set{&s.wait, &s.bases} {
		if sets[from].has(number) {
			sets[from].remove(number)
			sets[to].add(number)
		}
	}
}

// End says that the END header was seen: from now on Put always accepts.
func (s *Store) End() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end()
}

func (s *Store) end() {
	s.ended = true
	s.refused = false
	signal(s.room)
}

// Stop says that the guest is stopped: the newest version of a page is taken even while a
// frame with an older one is unacknowledged, and none is skipped. From now on Put always
// accepts, as after End: what waits for room makes the guest stand still longer.
func (s *Store) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end()
	s.stop()
}

func (s *Store) stop() {
	s.stopped = true
	s.free(s.blocked)
	s.free(s.heldBack)
	signal(s.ready)
}

// free makes all that a set keeps available.
func (s *Store) free(held *set) {
	for n, ok := held.next(0); ok; n, ok = held.next(n) {
		held.remove(n)
		s.queueOf(&s.pages[n]).add(n)
	}
}

// PostCopy says that the guest runs at the destination: pages go as takeForGuest says. It implies
// Stop and End.
func (s *Store) PostCopy() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.postCopy = true
	s.end()
	s.stop()
}

// Enlarge gives contents that much memory, bytes, where they had less.
func (s *Store) Enlarge(memory int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.arena.enlarge(memory)
	s.refused = false
	signal(s.room)
}

// Ready is signalled when there may be something to take; one goroutine may wait for it,
// or several that take alike: each that gets a full frame wakes another.
func (s *Store) Ready() <-chan struct{} { return s.ready }

// Room is signalled when Put may have room again; one goroutine may wait for it.
func (s *Store) Room() <-chan struct{} { return s.room }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

var zeroPage [Size]byte

func isZero(data []byte) bool { return bytes.Equal(data, zeroPage[:]) }
