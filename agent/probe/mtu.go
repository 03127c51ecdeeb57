package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Largest is the largest packet that is tried on a path, bytes.
const Largest = 9080

// sizes are those that are tried, bytes: the MTUs of links, and between them what is left in the
// tunnels of others.
var sizes = []int{Largest, 9000, 1580, 1550, 1520, 1500, 1492, 1480, 1460, 1440, 1420, 1400, 1380, 1350, 1320, 1300, 1280, 1260, 1240, 1200, 1100, 1000}

// MTU is the largest packet, bytes with its headers, of those tried up to most, that gets from local to the
// reflector at remote in one piece; 0 if none does. Answers may come in fragments. It waits no
// longer when the largest that our own link takes was answered: there is none above it; else twice wait.
func MTU(ctx context.Context, local netip.Addr, remote netip.AddrPort, token []byte, most int, wait time.Duration) (int, error) {
	conn, err := udpAt(ctx, netip.AddrPortFrom(local, 0))
	if err != nil {
		return 0, fmt.Errorf("probe path from %s: %w", local, err)
	}
	defer conn.Close()
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	cerr := raw.Control(func(fd uintptr) { // may not be fragmented, whatever the kernel believes of the path
		if local.Is4() {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
		} else {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE)
		}
	})
	if err := errors.Join(cerr, err); err != nil {
		return 0, fmt.Errorf("probe path from %s: %w", local, err)
	}
	headers := 28
	if local.Is6() {
		headers = 48
	}
	best, largest, buf := 0, 0, make([]byte, 16<<10)
	for range 2 { // one may get lost
		for _, size := range sizes {
			if size > most || size <= best {
				continue
			}
			payload := make([]byte, size-headers)
			copy(payload, token)
			_, err := conn.WriteToUDPAddrPort(payload, remote)
			if !errors.Is(err, unix.EMSGSIZE) { // our own link takes it
				largest = max(largest, size)
			}
		}
		if err := conn.SetReadDeadline(time.Now().Add(wait)); err != nil {
			return 0, err
		}
		for ctx.Err() == nil {
			n, _, err := conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				break // the deadline, or an ICMP error of one that was too large
			}
			if bytes.HasPrefix(buf[:n], token) {
				best = max(best, n+headers)
			}
			if best >= largest {
				return best, nil
			}
		}
	}
	return best, ctx.Err()
}

// Least is a packet that is small enough for every path, bytes.
const Least = 128
