package peer

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"godwit/internal/lasting"
)

// ListenStreams listens for byte streams that come by MPTCP, over any uplink, until ctx
// ends: on a port that it chooses, as a later subflow joins at the same port of another
// address. They may have window bytes on their way here (0: what the kernel gives). streams is
// called for each on a goroutine of its own.
func ListenStreams(ctx context.Context, id *Identity, window int64, streams func(*Stream), log *slog.Logger) (port uint16, err error) {
	var config net.ListenConfig
	config.SetMultipathTCP(true)
	config.Control = listenWindow(window)
	listener, err := config.Listen(ctx, "tcp", ":0")
	if err != nil {
		return 0, fmt.Errorf("listen for streams by mptcp: %w", err)
	}
	context.AfterFunc(ctx, func() { listener.Close() })
	heard := lasting.Listener(listener, func(err error) { log.Warn("accept stream", "error", err, "cure", lasting.Cure) })
	go func() {
		for {
			raw, err := heard.Accept()
			if err != nil {
				return
			}
			go serveRaw(ctx, id, raw, streams, log)
		}
	}()
	return uint16(listener.Addr().(*net.TCPAddr).Port), nil //nolint:gosec // a port fits
}

func serveRaw(ctx context.Context, id *Identity, raw net.Conn, streams func(*Stream), log *slog.Logger) {
	defer raw.Close()
	conn := tls.Server(raw, id.server())
	shake, cancel := context.WithTimeout(ctx, headerWait)
	defer cancel()
	if err := conn.HandshakeContext(shake); err != nil || conn.ConnectionState().NegotiatedProtocol != StreamProtocol {
		log.Warn("stream refused", "from", raw.RemoteAddr(), "error", err)
		return
	}
	stream, err := acceptStream(conn)
	if err != nil {
		log.Warn("stream refused", "from", raw.RemoteAddr(), "error", err)
		return
	}
	streams(stream)
}

// OpenMultipath opens a byte stream by MPTCP: its first subflow goes over p to port, others
// as both hosts' path managers know their addresses. It may have window bytes on their way, of
// all subflows together. One that is not MPTCP is an error.
func (l *Link) OpenMultipath(ctx context.Context, p Path, port uint16, h Header, window int64) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(p.Local, 0))}
	d.SetMultipathTCP(true)
	raw, err := d.DialContext(ctx, "tcp", netip.AddrPortFrom(p.Remote, port).String())
	if err != nil {
		return nil, fmt.Errorf("open stream to %s by mptcp: %w", l.host, err)
	}
	if multi, err := raw.(*net.TCPConn).MultipathTCP(); err != nil || !multi {
		raw.Close()
		return nil, errors.Join(fmt.Errorf("open stream to %s by mptcp: it became plain TCP; does something on the way, or a kernel, not know it?", l.host), err)
	}
	roomToSend(raw, window)
	conn, err := l.shake(ctx, raw, StreamProtocol)
	if err != nil {
		return nil, fmt.Errorf("open stream to %s by mptcp: %w", l.host, err)
	}
	line, err := json.Marshal(h)
	if err == nil {
		conn.SetWriteDeadline(time.Now().Add(dialLimit)) //nolint:errcheck // the write would fail too
		_, err = conn.Write(append(line, '\n'))
		conn.SetWriteDeadline(time.Time{}) //nolint:errcheck // as above
	}
	if err != nil {
		raw.Close()
		return nil, fmt.Errorf("open stream to %s by mptcp: %w", l.host, err)
	}
	return conn, nil
}
