package mptcp

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Leaving counts the TCP sockets on addrs that carry part of an MPTCP connection, or that
// the kernel is only finishing (no process holds them), those in time-wait not. The kernel
// picks them by their address: with thousands of others this costs a small part of Connections.
func Leaving(addrs ...netip.Addr) (int, error) {
	leaving := 0
	for _, addr := range addrs {
		sockets, err := ask(func(family uint8) []byte { return onAddress(family, addr) })
		if err != nil {
			return 0, fmt.Errorf("count tcp sockets of %s: %w", addr, err)
		}
		for _, s := range sockets {
			if s.local.Addr() == addr && (s.mptcp && s.sub.token != 0 || s.inode == 0) {
				leaving++
			}
		}
	}
	return leaving, nil
}

// onAddress asks for live TCP sockets with that local address: struct inet_diag_req_v2, and
// a program of one struct inet_diag_bc_op with its struct inet_diag_hostcond.
func onAddress(family uint8, addr netip.Addr) []byte {
	request := diagRequest(family, unix.IPPROTO_TCP, liveStates)
	bits := addr.Unmap().WithZone("").AsSlice()
	const operation, condition = 4, 8
	length := operation + condition + len(bits)
	program := make([]byte, 4, 4+length)
	binary.NativeEndian.PutUint16(program, uint16(4+length)) //nolint:gosec // 32 at most
	binary.NativeEndian.PutUint16(program[2:], diagReqBytecode)
	program = append(program, bytecodeSource, byte(length))                       // as it holds: the end
	program = binary.NativeEndian.AppendUint16(program, uint16(length+operation)) //nolint:gosec // and else beyond it
	family = unix.AF_INET
	if len(bits) == 16 {
		family = unix.AF_INET6
	}
	program = append(program, family, byte(8*len(bits)), 0, 0)
	program = binary.NativeEndian.AppendUint32(program, ^uint32(0)) // any port
	return append(request, append(program, bits...)...)
}
