// Package datapath is our own data path of a guest's memory (docs/datapath.md, transfer/proxy) as an agent sees it: how
// much of this host's memory it may take, what a look at it says to who decides when what is left fits, and which
// figures people are told.
package datapath

import (
	"slices"
	"sync"

	"godwit/agent/capable"
	"godwit/migration"
	"godwit/transfer/proxy"
)

// leastBuffer is for pages of a small guest, bytes; a larger one's takes half its memory.
const leastBuffer = 32 << 20

// What all guests' pages together may take of what is free on a host. What a guest misses may be read long before it is
// sent: the file for what has no room may be small, and the guest waits.
const (
	shareOfFree  = 0.5
	refillOfFree = 0.75
)

// Buffers are what the sources of a host were promised of its memory for guests' pages. It fills seconds after that: what
// is free then is not free for the next.
type Buffers struct {
	mu  sync.Mutex
	all []*Buffer
}

// Buffer is what one source was promised, until End.
type Buffer struct {
	of     *Buffers
	bytes  int64
	needed int64        // beside it, for what is kept of each page
	held   func() int64 // how much of it is filled
}

// New promises a source a buffer for pages of a guest of so much memory, bytes.
func (b *Buffers) New(plan migration.Plan, memory int64) *Buffer {
	most := min(max(memory/2, leastBuffer), proxy.DefaultBuffer)
	switch {
	case plan.Buffer > 0:
		return b.promise(memory, func(int64) int64 { return plan.Buffer })
	case plan.Mode == "postcopy":
		most = memory + leastBuffer
	}
	return b.promise(memory, func(needed int64) int64 { return b.within(most, needed, shareOfFree, nil) })
}

// Refill promises one for what a guest misses at its destination.
func (b *Buffers) Refill(memory int64) *Buffer {
	return b.promise(memory, func(needed int64) int64 { return b.within(memory+leastBuffer, needed, refillOfFree, nil) })
}

func (b *Buffers) promise(memory int64, size func(needed int64) int64) *Buffer {
	b.mu.Lock()
	defer b.mu.Unlock()
	needed := capable.NeededToSend(memory)
	made := &Buffer{of: b, bytes: size(needed), needed: needed, held: func() int64 { return 0 }}
	b.all = append(b.all, made)
	return made
}

// within is as much of a buffer for a guest's pages as this host has memory for: a share of what is free beside what is
// kept of each page, without what others were promised, or the kernel would end some process for the rest, maybe the
// guest's QEMU. What finds no room waits in QEMU, and in a file once the guest stands still. instead: that buffer is part
// of it; nil: none is.
func (b *Buffers) within(most, needed int64, share float64, instead *Buffer) int64 {
	free, err := freeMemory()
	if err != nil {
		return most
	}
	free -= needed
	promised := int64(0)
	for _, other := range b.all {
		held := other.held()
		if free += held; held == 0 { // nothing was read yet
			free -= other.needed
		}
		if other != instead {
			promised += other.bytes
		}
	}
	return min(most, max(int64(float64(free)*share)-promised, leastBuffer))
}

// Bytes is how much it is.
func (b *Buffer) Bytes() int64 {
	b.of.mu.Lock()
	defer b.of.mu.Unlock()
	return b.bytes
}

// Follow makes it that of a guest whose rest is to follow it, all of which is read before it is stopped, and returns how
// much it is then.
func (b *Buffer) Follow(plan migration.Plan, memory int64) int64 {
	b.of.mu.Lock()
	defer b.of.mu.Unlock()
	if plan.Buffer == 0 {
		b.bytes = max(b.bytes, b.of.within(memory+leastBuffer, 0, shareOfFree, b))
	}
	return b.bytes
}

// Fills says who fills it, and has it end when that does.
func (b *Buffer) Fills(source *proxy.Source) {
	b.fills(func() int64 { return source.Stats().Held })
	go func() {
		<-source.Done()
		b.End()
	}()
}

func (b *Buffer) fills(held func() int64) {
	b.of.mu.Lock()
	defer b.of.mu.Unlock()
	b.held = held
}

// End gives it back.
func (b *Buffer) End() {
	b.of.mu.Lock()
	defer b.of.mu.Unlock()
	b.of.all = slices.DeleteFunc(b.of.all, func(other *Buffer) bool { return other == b })
}

// freeMemory is capable.AvailableMemory. Tests have another.
var freeMemory = capable.AvailableMemory

// MostStream bounds the memory of a guest's stream, bytes: beside the guest's own there are
// its devices' ROMs and frame buffers.
func MostStream(memory int64) uint64 { return uint64(2*memory + 4<<30) } //nolint:gosec // checked, see capable
