package serve

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// datagramLimit is the longest datagram that is answered, in bytes.
	datagramLimit = 2048
	// udpQueue is what the kernel may keep for us while we do not run, in bytes:
	// a paused guest finds everything that was held for it at once.
	udpQueue = 4 << 20
)

// answerer looks at one datagram and returns what to send back, or nothing.
// The answer may share memory with the datagram.
type answerer interface {
	answer(from netip.AddrPort, datagram []byte) []byte
}

// echo returns datagrams as they came.
type echo struct{}

func newEcho() answerer { return echo{} }

func (echo) answer(_ netip.AddrPort, datagram []byte) []byte { return datagram }

func listenUDP(ctx context.Context, network, address string, a answerer) error {
	var lc net.ListenConfig
	pc, err := lc.ListenPacket(ctx, network, address)
	if err != nil {
		return err
	}
	c := pc.(*net.UDPConn)
	if err := wantDestination(c, network == "udp6"); err != nil {
		c.Close()
		return err
	}
	context.AfterFunc(ctx, func() { c.Close() })
	go answerAll(ctx, c, a)
	return nil
}

func answerAll(ctx context.Context, c *net.UDPConn, a answerer) {
	buf, oob := make([]byte, datagramLimit), make([]byte, 128)
	for {
		n, m, flags, from, err := c.ReadMsgUDPAddrPort(buf, oob)
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(time.Millisecond) // a queued ICMP error
			continue
		}
		if flags&unix.MSG_TRUNC != 0 {
			continue
		}
		if out := a.answer(from, buf[:n]); out != nil {
			// The address asked may be gone from here by now: then nobody answers.
			_, _, _ = c.WriteMsgUDPAddrPort(out, replyFrom(oob[:m]), from)
		}
	}
}
