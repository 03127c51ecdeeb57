package agent

import (
	"fmt"
	"math/bits"

	"godwit/vm/guest"
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
	m.rec.Note(fmt.Sprintf("the guest has %d MPTCP connections, and its kernel room for %d with %d MiB of memory: those beyond fall back to plain TCP, which cannot follow and stays on the tunnel; give it more memory (1 MiB for each %d)",
		connections, room, memory>>20, tokenChain))
}

// standsStill says whether what has come and waits for its readers may use up what the guest's
// kernel gives all of TCP. Linux then drops what else comes on MPTCP connections and keeps what
// came out of order: none of them gets on again, whether the guest moves or not.
func standsStill(u guest.Unread) bool {
	return u.Limit > 0 && (u.Grown > u.Limit || u.Used > u.Limit-u.Limit/4)
}

// noteUnread says so where the guest is too small for what its clients send.
func (m *outgoing) noteUnread(u *guest.Unread) {
	if u == nil || !standsStill(*u) {
		return
	}
	which := "when that is used up, all MPTCP connections of the guest stand still for good"
	if u.Used >= u.Limit {
		which = "that is used up: MPTCP connections of the guest stand still, and moving does not help them"
	}
	m.rec.Note(fmt.Sprintf("the guest's receive buffers may hold %s on %d MPTCP connections (%s are in use), and its kernel gives all of TCP %s: %s; lower net.ipv4.tcp_rmem or raise net.ipv4.tcp_mem in it (docs/guest.md, Uploads to a small guest)",
		mebibytes(u.Grown), u.Connections, mebibytes(u.Used), mebibytes(u.Limit), which))
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
