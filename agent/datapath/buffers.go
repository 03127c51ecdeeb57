// Package datapath is our own data path of a guest's memory (docs/datapath.md, transfer/proxy) as an agent sees it: how
// much of this host's memory it may take, what a look at it says to who decides when what is left fits, and which
// figures people are told.
package datapath

import (
	"godwit/agent/capable"
	"godwit/migration"
	"godwit/transfer/proxy"
)

// leastBuffer is for pages of a small guest, bytes; a larger one's takes half its memory.
const leastBuffer = 32 << 20

// Buffer is how much memory a source takes for pages of a guest of so much, bytes.
func Buffer(plan migration.Plan, memory int64) int64 {
	switch {
	case plan.Buffer > 0:
		return plan.Buffer
	case plan.Mode == "postcopy":
		return FollowBuffer(plan, memory)
	}
	return withinFree(min(max(memory/2, leastBuffer), proxy.DefaultBuffer), memory, 0.5)
}

// FollowBuffer is that of one whose rest is to follow it: all is read before it is stopped.
func FollowBuffer(plan migration.Plan, memory int64) int64 {
	if plan.Buffer > 0 {
		return plan.Buffer
	}
	return withinFree(memory+leastBuffer, memory, 0.5)
}

// RefillBuffer is for what a guest misses at its destination, of which all may be read long before it is sent: the file
// for what has no room there may be small, and the guest waits.
func RefillBuffer(memory int64) int64 { return withinFree(memory+leastBuffer, memory, 0.75) }

// withinFree is as much of a buffer for a guest's pages as this host has memory for: a share of what is free beside
// what is kept of each page, or the kernel would end some process for the rest, maybe the guest's QEMU. What finds no
// room waits in QEMU, and in a file once the guest stands still.
func withinFree(buffer, memory int64, share float64) int64 {
	free, err := freeMemory()
	if err != nil {
		return buffer
	}
	return min(buffer, max(int64(float64(free-capable.NeededToSend(memory))*share), leastBuffer))
}

// freeMemory is capable.AvailableMemory. Tests have another.
var freeMemory = capable.AvailableMemory

// MostStream bounds the memory of a guest's stream, bytes: beside the guest's own there are
// its devices' ROMs and frame buffers.
func MostStream(memory int64) uint64 { return uint64(2*memory + 4<<30) } //nolint:gosec // checked, see capable
