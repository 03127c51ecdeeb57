package serve

import (
	"fmt"
	"os"
	"strconv"
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
	firstInLine()
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

// firstInLine has this process run before others where it may: what is asked is whether the
// guest runs, not how long its run queue is. It goes for all of its threads, and those to
// come: Go's monitor holds a goroutine that is in a system call for a moment, and a thread
// that preempts the monitor there, on a guest's only processor, waits for it without end. Only
// the kernel's limit for such threads ended that, after one to three seconds in which nothing
// else of the guest ran.
func firstInLine() {
	attributes := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}
	threads, _ := os.ReadDir("/proc/self/task")
	for _, thread := range threads {
		if id, err := strconv.Atoi(thread.Name()); err == nil {
			_ = unix.SchedSetAttr(id, &attributes, 0)
		}
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
