package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Largest is a packet as large as links take, those with jumbo frames too, and a tunnel's headers, bytes.
const Largest = 9080

// sizes are those that are tried below the one that is asked for, bytes: the MTUs of links, and between them what is
// left in the tunnels of others.
var sizes = []int{Largest, 9000, 1580, 1550, 1520, 1500, 1492, 1480, 1460, 1440, 1420, 1400, 1380, 1350, 1320, 1300, 1280, 1260, 1240, 1200, 1100, 1000}

// MTU is the largest packet, bytes with its headers, most or of those tried below it, that gets from local to the
// reflector at remote in one piece; 0 if none does. Answers may come in fragments. It waits no
// longer when the largest that our own link takes was answered: there is none above it; else twice wait.
func MTU(ctx context.Context, local netip.Addr, remote netip.AddrPort, token []byte, most int, wait time.Duration) (int, error) {
	conn, err := unfragmented(ctx, local)
	if err != nil {
		return 0, fmt.Errorf("probe path from %s: %w", local, err)
	}
	defer conn.Close()
	t := trial{conn: conn, remote: remote, token: token, headers: headers(local), buf: make([]byte, 64<<10)}
	for range 2 { // one may get lost
		t.send(most)
		if err := conn.SetReadDeadline(time.Now().Add(wait)); err != nil {
			return 0, err
		}
		if t.answered(ctx) {
			return t.best, nil
		}
	}
	return t.best, ctx.Err()
}

// headers are those of a datagram from local, IP's and UDP's, bytes.
func headers(local netip.Addr) int {
	if local.Is6() {
		return 48
	}
	return 28
}

// unfragmented opens a UDP socket whose packets may not be fragmented, whatever the kernel believes of the path.
func unfragmented(ctx context.Context, local netip.Addr) (*net.UDPConn, error) {
	conn, err := udpAt(ctx, netip.AddrPortFrom(local, 0))
	if err != nil {
		return nil, err
	}
	raw, err := conn.SyscallConn()
	if err == nil {
		var failed error
		err = raw.Control(func(fd uintptr) {
			if local.Is4() {
				failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
			} else {
				failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE)
			}
		})
		err = errors.Join(err, failed)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// trial tries packets of a path; sizes are bytes with headers.
type trial struct {
	conn    *net.UDPConn
	remote  netip.AddrPort
	token   []byte
	headers int
	buf     []byte

	largest int // that our own link took
	best    int // that was answered; 0: none
}

// send sends a packet of most, and of each size below it that is larger than the best.
func (t *trial) send(most int) {
	for k, size := range append([]int{most}, sizes...) {
		if k > 0 && size >= most || size <= t.best {
			continue
		}
		payload := make([]byte, size-t.headers)
		copy(payload, t.token)
		if _, err := t.conn.WriteToUDPAddrPort(payload, t.remote); !errors.Is(err, unix.EMSGSIZE) {
			t.largest = max(t.largest, size)
		}
	}
}

// answered takes answers in until the deadline, and says whether the largest was among them.
func (t *trial) answered(ctx context.Context) bool {
	for ctx.Err() == nil {
		n, _, err := t.conn.ReadFromUDPAddrPort(t.buf)
		if err != nil {
			return false // the deadline, or an ICMP error of one that was too large
		}
		if bytes.HasPrefix(t.buf[:n], t.token) {
			t.best = max(t.best, n+t.headers)
		}
		if t.best >= t.largest {
			return true
		}
	}
	return false
}

// Least is a packet that is small enough for every path, bytes.
const Least = 128
