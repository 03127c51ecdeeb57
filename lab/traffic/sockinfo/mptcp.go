package sockinfo

import (
	"encoding/binary"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// From linux/mptcp.h: options of SOL_MPTCP, and the shape of their answers, a
// struct mptcp_subflow_data followed by one element per subflow.
const (
	optTCPInfo      = 2
	optSubflowAddrs = 3

	headSize  = 16  // struct mptcp_subflow_data
	addrSize  = 128 // struct __kernel_sockaddr_storage
	pairSize  = 2 * addrSize
	infoSize  = int(unsafe.Sizeof(unix.TCPInfo{}))
	mostFlows = 16 // the kernel allows 8 and the first
)

// multipath lists the subflows of an MPTCP socket. It is an error if the
// socket is none or has fallen back to TCP.
func multipath(fd int) ([]Subflow, error) {
	for attempt := 0; ; attempt++ {
		infos, stride, n, err := ask(fd, optTCPInfo, infoSize)
		if err != nil {
			return nil, err
		}
		pairs, pairStride, m, err := ask(fd, optSubflowAddrs, pairSize)
		if err != nil {
			return nil, err
		}
		// Two questions, two moments: ask again if a subflow came or went between.
		if n != m && attempt < 3 {
			continue
		}
		flows := make([]Subflow, min(n, m))
		for i := range flows {
			var t unix.TCPInfo
			copy(unsafe.Slice((*byte)(unsafe.Pointer(&t)), infoSize), infos[i*stride:(i+1)*stride])
			flows[i] = fromTCPInfo(&t)
			pair := pairs[i*pairStride:]
			flows[i].Local, flows[i].Remote = sockaddr(pair), sockaddr(pair[addrSize:])
		}
		return flows, nil
	}
}

// ask returns the elements of one answer, how far apart they are, and their number.
// A kernel whose structure is smaller than ours puts them closer together.
func ask(fd, option, size int) (elements []byte, stride, n int, err error) {
	buf := make([]byte, headSize+mostFlows*size)
	binary.NativeEndian.PutUint32(buf, headSize)
	binary.NativeEndian.PutUint32(buf[12:], uint32(size))
	length := uint32(len(buf))
	_, _, e := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_MPTCP, uintptr(option),
		uintptr(unsafe.Pointer(&buf[0])), uintptr(unsafe.Pointer(&length)), 0)
	if e != 0 {
		return nil, 0, 0, e
	}
	n = int(binary.NativeEndian.Uint32(buf[4:]))
	stride = int(min(binary.NativeEndian.Uint32(buf[8:]), binary.NativeEndian.Uint32(buf[12:]), uint32(size)))
	return buf[headSize:], stride, min(n, mostFlows), nil
}

func sockaddr(b []byte) netip.AddrPort {
	port := binary.BigEndian.Uint16(b[2:])
	switch binary.NativeEndian.Uint16(b) {
	case unix.AF_INET:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), port)
	case unix.AF_INET6:
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[8:24])).Unmap(), port)
	}
	return netip.AddrPort{}
}
