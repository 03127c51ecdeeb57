// Package sockfilter has the kernel choose what a socket receives.
package sockfilter

import (
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Attach has the socket fd receive only what program, a classic BPF filter, lets through
// (socket(7), SO_ATTACH_FILTER).
func Attach(fd int, program []bpf.Instruction) error {
	raw, err := bpf.Assemble(program)
	if err != nil {
		return err
	}
	code := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		code[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]})
}
