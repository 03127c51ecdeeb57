package tunnel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

// verifyEvery is how often an echo is asked for until one comes back.
const verifyEvery = 100 * time.Millisecond

// Verify sends ICMP echoes of the tunnel's whole MTU to its other end until one
// comes back. It waits until ctx ends, so give it a deadline; the error then says
// that nothing, or only small packets, came back. Bring both ends up first: a
// WireGuard handshake into the void is repeated after 5 s only.
func (t *Tunnel) Verify(ctx context.Context) error {
	if err := probe(ctx, t.Name, t.Inner, t.PeerInner, t.MTU); err != nil {
		return fmt.Errorf("verify tunnel %s to %s: %w", t.Name, t.Remote, err)
	}
	return nil
}

// ErrOnlySmall says that echoes came back, but none of full size: the path drops
// fragments, and the tunnel would not carry a guest's packets.
var ErrOnlySmall = errors.New("small packets pass, full-size packets do not: the path drops fragments")

// probe sends echoes of size bytes (whole IPv4 packets, DF set) and small ones
// from inner to peer through device dev, until a large one comes back.
func probe(ctx context.Context, dev string, inner, peer netip.Addr, size int) error {
	conn, err := listenEcho(ctx, dev, inner)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	id := int(time.Now().UnixNano() & 0xffff)
	small := false
	for seq := 0; ; seq++ {
		for _, n := range []int{64, size} {
			if err := ask(conn, peer, id, seq, n); err != nil {
				return err
			}
		}
		full, any, err := hear(ctx, conn, peer, id, size)
		small = small || any
		if full || err != nil {
			return err
		}
		if ctx.Err() != nil && small {
			return ErrOnlySmall
		}
		if ctx.Err() != nil {
			return fmt.Errorf("no answer: %w", ctx.Err())
		}
	}
}

func listenEcho(ctx context.Context, dev string, inner netip.Addr) (net.PacketConn, error) {
	lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		cerr := raw.Control(func(fd uintptr) {
			err = errors.Join(unix.BindToDevice(int(fd), dev), unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE))
		})
		return errors.Join(cerr, err)
	}}
	return lc.ListenPacket(ctx, "ip4:icmp", inner.String())
}

// ask sends an echo request of size bytes.
func ask(conn net.PacketConn, peer netip.Addr, id, seq, size int) error {
	body := bytes.Repeat([]byte{'g'}, size-20-8)
	m, err := (&icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: id, Seq: seq & 0xffff, Data: body}}).Marshal(nil)
	if err != nil {
		return err
	}
	_, err = conn.WriteTo(m, &net.IPAddr{IP: peer.AsSlice()})
	if errors.Is(err, unix.ENOBUFS) {
		return nil
	}
	return err
}

// hear waits one interval for our echo of that size. small says that a smaller
// one came, before it or alone.
func hear(ctx context.Context, conn net.PacketConn, peer netip.Addr, id, size int) (full, small bool, err error) {
	buf := make([]byte, size+64)
	if ctx.Err() == nil {
		_ = conn.SetReadDeadline(time.Now().Add(verifyEvery))
	}
	for ctx.Err() == nil {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			var ne net.Error
			if errors.As(err, &ne) && ne.Timeout() {
				err = nil
			}
			return false, small, err
		}
		m, err := icmp.ParseMessage(1, buf[:n])
		if err != nil || m.Type != ipv4.ICMPTypeEchoReply || from.String() != peer.String() {
			continue
		}
		if e, ok := m.Body.(*icmp.Echo); ok && e.ID == id {
			if len(e.Data) >= size-28 {
				return true, small, nil
			}
			small = true
		}
	}
	return false, small, nil
}
