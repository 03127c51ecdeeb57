package serve

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"godwit/lab/traffic/record"
)

// Echo serves the echo port alone, for as long as the process lives, with one
// thread, one socket for both families and two system calls a datagram. A prober
// measures by it how long a guest and its network are dark: under emulation, where
// a migrated guest's code is translated anew, the scheduler of a larger server
// would be measured too.
func Echo() error {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("serve echo: %w", err)
	}
	for _, option := range [][3]int{
		{unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0},
		{unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1},
		{unix.SOL_SOCKET, unix.SO_RCVBUF, udpQueue},
	} {
		if err := unix.SetsockoptInt(fd, option[0], option[1], option[2]); err != nil {
			return fmt.Errorf("serve echo: %w", err)
		}
	}
	if err := unix.Bind(fd, &unix.SockaddrInet6{Port: record.PortEcho}); err != nil {
		return fmt.Errorf("serve echo: %w", err)
	}
	setClass(first)
	var from unix.RawSockaddrInet6
	buf, control := make([]byte, datagramLimit), make([]byte, 64)
	iov := unix.Iovec{Base: &buf[0]}
	msg := unix.Msghdr{Name: (*byte)(unsafe.Pointer(&from)), Iov: &iov, Control: &control[0]}
	msg.SetIovlen(1)
	for {
		iov.SetLen(len(buf))
		msg.Namelen, msg.Flags = unix.SizeofSockaddrInet6, 0
		msg.SetControllen(len(control))
		n, _, e := unix.Syscall(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(&msg)), 0)
		if e != 0 || msg.Flags&unix.MSG_TRUNC != 0 {
			continue
		}
		clearDevice(control[:msg.Controllen])
		iov.SetLen(int(n))
		_, _, _ = unix.Syscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&msg)), 0)
	}
}

// clearDevice leaves the address that was asked as the answer's source, by
// whichever device the route says.
func clearDevice(control []byte) {
	if len(control) < unix.CmsgLen(unix.SizeofInet6Pktinfo) {
		return
	}
	info := (*unix.Inet6Pktinfo)(unsafe.Pointer(&control[unix.CmsgLen(0)]))
	info.Ifindex = 0
}
