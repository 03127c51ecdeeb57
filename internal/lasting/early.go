package lasting

import (
	"errors"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Early is a net.ListenConfig's Control. It lets a socket have an address that no device has yet, as that of a VPN, or one
// that a router's advertisement brings, while the host boots: it hears what comes from when one has it
// (IP_FREEBIND, ip(7)).
func Early(network, _ string, c syscall.RawConn) error {
	level, option := unix.IPPROTO_IP, unix.IP_FREEBIND
	if strings.HasSuffix(network, "6") {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_FREEBIND
	}
	var failed error
	err := c.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), level, option, 1) })
	return errors.Join(err, failed)
}
