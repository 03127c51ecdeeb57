package pages

import (
	"fmt"
	"io"
)

// Slot names a place for one page in an Arena; 0 is none.
type Slot uint32

// Spill is where an Arena writes when its memory is used up: a file that nobody else has. It is written and read by several
// goroutines at a time, at different places.
type Spill interface {
	io.ReaderAt
	io.WriterAt
}

// chunkSlots is how many slots are allocated at once: 1 MiB.
const chunkSlots = 256

// Arena holds contents of pages in slots: the first ones in memory, later ones in a spill
// file. It is not safe for use by several goroutines, but for what says so.
type Arena struct {
	bound  Slot // slots in memory; those above are in the spill
	grow   func(bytes int) ([]byte, error)
	spill  Spill
	chunks [][]byte

	fresh     Slot // first slot in memory that never was in use
	free      []Slot
	far       Slot // the same of the spill
	farFree   []Slot
	used      int
	spillUsed int
}

// NewArena makes an arena that holds up to memory bytes of contents in memory (at least
// one page) that grow provides in pieces; nil is the heap. A nil spill has no room.
func NewArena(memory int64, grow func(bytes int) ([]byte, error), spill Spill) *Arena {
	if grow == nil {
		grow = func(n int) ([]byte, error) { return make([]byte, n), nil }
	}
	bound := boundOf(memory)
	return &Arena{bound: bound, grow: grow, spill: spill, fresh: 1, far: bound + 1}
}

func boundOf(memory int64) Slot { return Slot(min(max(memory/Size, 1), 1<<31)) }

// enlarge gives it that much memory, where it has less, and the spill was not used: its slots come after those in
// memory.
func (a *Arena) enlarge(memory int64) {
	bound := boundOf(memory)
	if bound <= a.bound || a.far != a.bound+1 {
		return
	}
	if last := int(a.bound-1) / chunkSlots; last < len(a.chunks) { // which has no room for those that would come next
		for ; a.fresh <= a.bound; a.fresh++ {
			a.free = append(a.free, a.fresh)
		}
		a.fresh = Slot(last+1)*chunkSlots + 1
	}
	a.bound, a.far = bound, bound+1
}

// allocate returns a slot in memory, or 0 if there is none free.
func (a *Arena) allocate() (Slot, error) {
	if n := len(a.free); n > 0 {
		slot := a.free[n-1]
		a.free = a.free[:n-1]
		a.used++
		return slot, nil
	}
	if a.fresh > a.bound {
		return 0, nil
	}
	if chunk := int(a.fresh-1) / chunkSlots; chunk == len(a.chunks) {
		slots := min(chunkSlots, int(a.bound)-chunk*chunkSlots)
		memory, err := a.grow(slots * Size)
		if err != nil {
			return 0, fmt.Errorf("allocate the buffer: %w", err)
		}
		a.chunks = append(a.chunks, memory)
	}
	slot := a.fresh
	a.fresh++
	a.used++
	return slot, nil
}

// allocateFar returns a slot in the spill, or 0 if there is no spill.
func (a *Arena) allocateFar() Slot {
	if a.spill == nil {
		return 0
	}
	a.spillUsed++
	if n := len(a.farFree); n > 0 {
		slot := a.farFree[n-1]
		a.farFree = a.farFree[:n-1]
		return slot
	}
	slot := a.far
	a.far++
	return slot
}

func (a *Arena) release(slot Slot) {
	switch {
	case slot == 0:
	case slot > a.bound:
		a.spillUsed--
		a.farFree = append(a.farFree, slot)
	default:
		a.used--
		a.free = append(a.free, slot)
	}
}

// bytes returns the content of a slot in memory; nil for one in the spill.
func (a *Arena) bytes(slot Slot) []byte {
	if slot == 0 || slot > a.bound {
		return nil
	}
	n := int(slot - 1)
	from := n % chunkSlots * Size
	return a.chunks[n/chunkSlots][from : from+Size : from+Size]
}

// spillOut writes the content of a slot in the spill. Several goroutines may write and read there, each its own slots.
func (a *Arena) spillOut(slot Slot, data []byte) error {
	if _, err := a.spill.WriteAt(data, a.offset(slot)); err != nil {
		return fmt.Errorf("spill: %w", err)
	}
	return nil
}

// spillIn returns a copy of the content of a slot in the spill.
func (a *Arena) spillIn(slot Slot) ([]byte, error) {
	data := make([]byte, Size)
	if _, err := a.spill.ReadAt(data, a.offset(slot)); err != nil {
		return nil, fmt.Errorf("read the spill: %w", err)
	}
	return data, nil
}

func (a *Arena) offset(slot Slot) int64 { return int64(slot-a.bound-1) * Size }
