package mptcp

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Listening are the addresses and ports at which new clients are taken: of TCP, which those of MPTCP are, too, and of
// UDP, by sockets without a fixed peer. A kernel without udp_diag tells none of UDP. What takes clients of one device
// alone is none that has all addresses, and left out.
func Listening() (tcp, udp []netip.AddrPort, err error) {
	if tcp, err = bound(unix.IPPROTO_TCP, StateListen); err != nil {
		return nil, nil, fmt.Errorf("list tcp listeners: %w", err)
	}
	if udp, err = bound(unix.IPPROTO_UDP, StateClose); err != nil && !errors.Is(err, ErrUnsupported) {
		return nil, nil, fmt.Errorf("list udp sockets: %w", err)
	}
	return tcp, udp, nil
}

func bound(protocol uint32, state State) ([]netip.AddrPort, error) {
	sockets, err := dump(protocol, 1<<state)
	if err != nil {
		return nil, err
	}
	var at []netip.AddrPort
	for _, s := range sockets {
		if s.local.Addr().IsUnspecified() && s.device != [4]byte{} {
			continue
		}
		at = append(at, s.local)
	}
	return at, nil
}
