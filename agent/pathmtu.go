package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"godwit/netstate/tunnel"
)

// packetSizes are those that are tried on a path, bytes: the MTUs of links, and
// between them what is left in the tunnels of others.
var packetSizes = []int{9080, 9000, 1580, 1550, 1520, 1500, 1492, 1480, 1460, 1440, 1420, 1400, 1380, 1350, 1320, 1300, 1280, 1260, 1240, 1200, 1100, 1000}

// pathMTU is the largest of packetSizes, up to most, that gets from local to the
// reflector at remote in one piece; 0 if none does. Answers may come in fragments. It waits no
// longer when the largest that our own link takes was answered: there is none above it.
func pathMTU(ctx context.Context, local netip.Addr, remote netip.AddrPort, token []byte, most int, wait time.Duration) (int, error) {
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
		for _, size := range packetSizes {
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

// mostOverhead is the most that a tunnel of ours adds to a packet, bytes: what the path is
// tried with before it is known which.
var mostOverhead = tunnel.Overhead(tunnel.WireGuard, true)

// fit finds out how large a packet of the guest may be for the tunnel to carry it in
// one piece. It is for connections that begin later: those that are open keep what
// they have agreed on, and the tunnel's packets go in fragments.
func (m *outgoing) fit(ctx context.Context, local netip.Addr, remote netip.AddrPort) {
	mtu := m.a.config.Network.MTU
	path, err := pathMTU(ctx, local, remote, m.work.accepted.Token, mtu+mostOverhead, 2*m.work.rtt+50*time.Millisecond)
	m.work.pathMTU = path
	if err != nil || path == 0 {
		m.rec.note(fmt.Sprintf("path %s → %s: its MTU is not known (%v); the tunnel's packets may go in fragments", local, remote.Addr(), err))
		return
	}
	m.plan.Fits = fitting(m.plan.Tunnel, local.Is6(), path, mtu)
}

// fitting is the largest packet, bytes, that a tunnel carries in one piece over a path of an
// MTU; 0 where those of the guest's mtu all do.
func fitting(kind string, outer6 bool, path, mtu int) int {
	fits := path - tunnel.Overhead(kind, outer6)
	if kind != tunnel.VXLAN && kind != tunnel.GRE && kind != tunnel.IPIP {
		const block = 16 // WireGuard pads to it (its paper, §5.4.6)
		fits = fits / block * block
	}
	if fits >= mtu {
		return 0
	}
	return fits
}
