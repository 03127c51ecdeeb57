package serve

import (
	"encoding/binary"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// wantDestination makes the kernel tell which address a datagram was sent to.
func wantDestination(c *net.UDPConn, v6 bool) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	err = raw.Control(func(fd uintptr) {
		if v6 {
			inner = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
		} else {
			inner = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
		}
		if unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, udpQueue) != nil {
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, udpQueue)
		}
	})
	if err == nil {
		err = inner
	}
	if err != nil {
		return fmt.Errorf("ask for destination addresses: %w", err)
	}
	return nil
}

// replyFrom turns the control message of a received datagram into the one that
// sends from the address it was sent to (ip(7), ipv6(7)). The interface is
// left to routing, but for link-local addresses. Nil where there is none.
func replyFrom(oob []byte) []byte {
	for rest := oob; len(rest) >= unix.SizeofCmsghdr; {
		h, data, next, err := unix.ParseOneSocketControlMessage(rest)
		if err != nil {
			return nil
		}
		switch {
		case h.Level == unix.IPPROTO_IP && h.Type == unix.IP_PKTINFO && len(data) >= unix.SizeofInet4Pktinfo:
			// struct in_pktinfo: ifindex, spec_dst, addr. spec_dst becomes the source.
			binary.NativeEndian.PutUint32(data, 0)
			return rest[:min(len(rest), unix.CmsgSpace(unix.SizeofInet4Pktinfo))]
		case h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_PKTINFO && len(data) >= unix.SizeofInet6Pktinfo:
			// struct in6_pktinfo: addr, ifindex.
			if !(data[0] == 0xfe && data[1]&0xc0 == 0x80) {
				binary.NativeEndian.PutUint32(data[16:], 0)
			}
			return rest[:min(len(rest), unix.CmsgSpace(unix.SizeofInet6Pktinfo))]
		}
		rest = next
	}
	return nil
}
