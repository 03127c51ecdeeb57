package mptcp

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// Waiting is how many bytes of the connections to remote, TCP and MPTCP, their programs have
// written and the other end has not acknowledged: what waits here, and what is on its way.
// Of MPTCP it is write_seq - snd_una of struct mptcp_info (linux/mptcp.h), which counts what
// two subflows carry once; of TCP the kernel's queue of what was sent or will be.
func Waiting(remote netip.AddrPort) (int64, error) {
	sockets, parents, err := dumpBoth()
	if err != nil {
		return 0, fmt.Errorf("list tcp sockets: %w", err)
	}
	return waiting(remote, sockets, parents), nil
}

func waiting(remote netip.AddrPort, sockets, parents []socket) (sum int64) {
	whole := map[uint32]bool{} // connections of several subflows, by token: counted as a whole
	for _, p := range parents {
		if p.infoLen < len(p.info) {
			continue
		}
		token, flags := binary.NativeEndian.Uint32(p.info[12:]), binary.NativeEndian.Uint32(p.info[8:])
		if flags&infoFallback != 0 { // then the one subflow knows
			continue
		}
		whole[token] = true
		if p.remote == remote {
			wrote, acked := binary.NativeEndian.Uint64(p.info[16:]), binary.NativeEndian.Uint64(p.info[24:])
			sum += max(0, int64(wrote-acked)) //nolint:gosec // sequence numbers: their difference is small
		}
	}
	for _, s := range sockets {
		if s.remote == remote && !(s.mptcp && whole[s.sub.token]) {
			sum += s.unacked
		}
	}
	return sum
}
