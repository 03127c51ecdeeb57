package hold

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// Without are the frames of ReadLeft that are not IP to one of addrs. It keeps its argument as it is.
func Without(frames [][]byte, addrs []netip.Addr) [][]byte {
	return slices.DeleteFunc(slices.Clone(frames), func(f []byte) bool { return slices.Contains(addrs, destination(f)) })
}

// destination is that of the IP packet in a frame of ReadLeft; the zero Addr: of none.
func destination(f []byte) netip.Addr {
	const from = HeaderLen + 14 // where the packet begins
	if len(f) < from {
		return netip.Addr{}
	}
	var addr netip.Addr
	switch kind := binary.BigEndian.Uint16(f[from-2:]); {
	case kind == unix.ETH_P_IP && len(f) >= from+20:
		addr, _ = netip.AddrFromSlice(f[from+16 : from+20])
	case kind == unix.ETH_P_IPV6 && len(f) >= from+40:
		addr, _ = netip.AddrFromSlice(f[from+24 : from+40])
	}
	return addr
}
