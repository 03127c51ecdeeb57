package agent

import (
	"fmt"
	"math/bits"
)

// Of Linux's table of MPTCP connections (net/mptcp/token.c, mptcp_token_init): a slot for
// each MiB of memory, rounded up to a power of two; a connection for which no slot has room
// becomes plain TCP, and nobody is told.
const (
	tokenSlot  = 1 << 20 // bytes of memory
	tokenChain = 4       // connections in one slot
	tokenMost  = 64 << 10
)

// roomMPTCP is how many MPTCP connections a guest with so much memory, in bytes, can have.
func roomMPTCP(memory int64) int {
	slots := max(memory/tokenSlot, 1)
	return tokenChain * min(1<<bits.Len64(uint64(slots-1)), tokenMost)
}

// noteRoom says so where the guest is too small for its connections: what comes when its
// table is full cannot follow, and looks as if its client had no MPTCP.
func (m *outgoing) noteRoom(connections int) {
	memory := m.work.facts.Memory
	room := roomMPTCP(memory)
	if memory == 0 || connections < room-room/10 {
		return
	}
	m.rec.note(fmt.Sprintf("the guest has %d MPTCP connections, and its kernel room for %d with %d MiB of memory: those beyond fall back to plain TCP, which cannot follow and stays on the tunnel; give it more memory (1 MiB for each %d)",
		connections, room, memory>>20, tokenChain))
}
