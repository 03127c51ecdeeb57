package transfer

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"

	"godwit/internal/lasting"
	"godwit/internal/socket"
)

// ServeStream joins one stream from the peer with a new connection to the unix socket on
// which the waiting QEMU listens. It returns when the stream has ended, nil if cleanly, and
// closes conn in any case. connected, if not nil, is called when QEMU has the connection.
// It ends within a second of ctx. The main stream must be connected
// to QEMU before the others: call it in the order of their numbers, each when the one
// before is under way.
func ServeStream(ctx context.Context, conn net.Conn, qemuSocket string, connected func()) error {
	qemu, err := dialQEMU(ctx, qemuSocket)
	if err != nil {
		socket.Abort(conn)
		return &SideError{Side: QEMU, Op: "connect", Err: err}
	}
	if connected != nil {
		connected()
	}
	var count counters
	b := &bridge{
		from: end{conn, Peer}, to: end{qemu, QEMU},
		forward: &count.forward, back: &count.back,
	}
	return b.run(ctx)
}

func dialQEMU(ctx context.Context, path string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "unix", path)
}

// HoldListener is the forwarder at the destination for a source QEMU that connects by
// itself (migrate URI tcp:HOST:PORT, with or without mptcp=on). It holds like a Source.
type HoldListener struct{ forwarder }

// Hold says where a HoldListener listens and who may come.
type Hold struct {
	Address string // host:port; port 0 chooses one
	MPTCP   bool
	// Joins are further addresses at which subflows of its MPTCP connections may come, at the
	// same port: the kernel takes a join only where something listens (RFC 8684 §3.2).
	Joins      []netip.Addr
	QEMUSocket string // where the waiting QEMU listens
}

// ListenHold listens as h says. The HoldListener lives until its main stream ends, ctx ends,
// or Close. Nothing here is encrypted: listen on a tunnel's address.
func ListenHold(ctx context.Context, h Hold) (*HoldListener, error) {
	var config net.ListenConfig
	config.SetMultipathTCP(h.MPTCP)
	if h.MPTCP {
		config.Control = receivesFar
	}
	listener, err := config.Listen(ctx, "tcp", h.Address)
	if err != nil {
		return nil, fmt.Errorf("listen for migration: %w", err)
	}
	joins, err := listenJoins(ctx, config, h.Joins, listener.Addr().(*net.TCPAddr).Port)
	if err != nil {
		listener.Close()
		return nil, err
	}
	l := &HoldListener{forwarder{
		listener: listener, accepts: Peer, connects: QEMU,
		connect: func(ctx context.Context, _ int) (net.Conn, error) { return dialQEMU(ctx, h.QEMUSocket) },
	}}
	l.begin(ctx)
	context.AfterFunc(l.ctx, func() { closeAll(joins) })
	return l, nil
}

// multipathBuffer is the receive buffer of an MPTCP connection that QEMU writes to, bytes (the kernel
// doubles it). How far QEMU is ahead cannot be bounded; a window that shrinks, as the buffer fills, makes Linux
// send beyond it, and what is dropped there comes again by a slow timer (package peer, MultipathWindow).
const multipathBuffer = 64 << 20

func receivesFar(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, multipathBuffer) //nolint:errcheck // without CAP_NET_ADMIN it is as the kernel has it
	})
}

// listenJoins listens where nobody but subflows may come: whoever connects is sent away.
func listenJoins(ctx context.Context, config net.ListenConfig, at []netip.Addr, port int) (all []net.Listener, err error) {
	for _, addr := range at {
		ln, err := config.Listen(ctx, "tcp", netip.AddrPortFrom(addr, uint16(port)).String()) //nolint:gosec // a port
		if err != nil {
			closeAll(all)
			return nil, fmt.Errorf("listen for subflows: %w", err)
		}
		all = append(all, ln)
		go sendAway(ln)
	}
	return all, nil
}

// sendAway does so with whoever comes, until the listener is closed.
func sendAway(ln net.Listener) {
	ln = lasting.Listener(ln, nil)
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		socket.Abort(conn)
	}
}

func closeAll(listeners []net.Listener) {
	for _, ln := range listeners {
		ln.Close()
	}
}

// Addr is where it listens.
func (l *HoldListener) Addr() netip.AddrPort {
	return l.listener.Addr().(*net.TCPAddr).AddrPort()
}
