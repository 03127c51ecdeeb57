package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
)

// socketBuffer is asked for in each direction: 160 ms of 400 Mbit/s.
const socketBuffer = 8 << 20

// A bind is the UDP socket of one tunnel, bound to one local address. It sends
// without DF and without UDP segmentation: a segment larger than the device's
// MTU would be refused, and ours are larger on purpose.
type bind struct {
	local netip.AddrPort
	mu    sync.Mutex
	mark  int
	conn  *net.UDPConn
	batch batchConn
	pool  sync.Pool // of *[]ipv4.Message

	crossed collisions
}

// batchConn is what ipv4.PacketConn and ipv6.PacketConn share.
type batchConn interface {
	ReadBatch(ms []ipv4.Message, flags int) (int, error)
	WriteBatch(ms []ipv4.Message, flags int) (int, error)
}

var _ conn.Bind = (*bind)(nil)

// Open binds the socket. The port that the device asks for is our own already.
func (b *bind) Open(uint16) ([]conn.ReceiveFunc, uint16, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn != nil {
		return nil, 0, conn.ErrBindAlreadyOpen
	}
	c, err := listenUDP(b.local, b.mark)
	if err != nil {
		return nil, 0, fmt.Errorf("open socket %s: %w", b.local, err)
	}
	b.conn = c
	if b.local.Addr().Is4() {
		b.batch = ipv4.NewPacketConn(c)
	} else {
		b.batch = ipv6.NewPacketConn(c)
	}
	b.pool.New = func() any { ms := make([]ipv4.Message, b.BatchSize()); return &ms }
	return []conn.ReceiveFunc{receive(b.batch, b.crossed.received)}, b.local.Port(), nil
}

func listenUDP(local netip.AddrPort, mark int) (*net.UDPConn, error) {
	network := "udp6"
	if local.Addr().Is4() {
		network = "udp4"
	}
	lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		cerr := raw.Control(func(fd uintptr) { err = setUpSocket(int(fd), local.Addr().Is4(), mark) })
		return errors.Join(cerr, err)
	}}
	pc, err := lc.ListenPacket(context.Background(), network, local.String())
	if err != nil {
		return nil, err
	}
	return pc.(*net.UDPConn), nil
}

// setUpSocket lets IP fragment. IPv6 routers do not, so there the sender cuts to
// the least MTU at once (RFC 8200 §5) what is larger than the route's; what is not goes in one piece, whatever
// this says, until a router answers that it is too big.
func setUpSocket(fd int, v4 bool, mark int) error {
	var errs []error
	if v4 {
		errs = append(errs, unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DONT))
	} else {
		errs = append(errs, unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DONT),
			unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MTU, 1280))
	}
	errs = append(errs, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, socketBuffer),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, socketBuffer))
	if mark != 0 {
		errs = append(errs, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, mark))
	}
	return errors.Join(errs...)
}

// readAgain is between tries to read packets where that fails, as where the host has no memory for it: the device would
// read none any more.
const readAgain = 100 * time.Millisecond

// receive returns what reads packets from b until that is closed; each is shown to saw.
func receive(b batchConn, saw func([]byte)) conn.ReceiveFunc {
	ms := make([]ipv4.Message, conn.IdealBatchSize)
	for i := range ms {
		ms[i].Buffers = make([][]byte, 1)
	}
	return func(packets [][]byte, sizes []int, eps []conn.Endpoint) (int, error) {
		batch := ms[:min(len(packets), len(ms))]
		for i := range batch {
			batch[i].Buffers[0] = packets[i]
		}
		n, err := b.ReadBatch(batch, 0)
		for ; err != nil; n, err = b.ReadBatch(batch, 0) {
			if errors.Is(err, net.ErrClosed) {
				return 0, err
			}
			time.Sleep(readAgain)
		}
		for i := range batch[:n] {
			sizes[i] = batch[i].N
			if a, ok := batch[i].Addr.(*net.UDPAddr); ok {
				eps[i] = &endpoint{addr: a}
				saw(packets[i][:sizes[i]])
			} else {
				sizes[i] = 0
			}
		}
		return n, nil
	}
}

// Send writes the packets, all of them, or says which error stopped it.
func (b *bind) Send(bufs [][]byte, ep conn.Endpoint) error {
	to, ok := ep.(*endpoint)
	if !ok {
		return conn.ErrWrongEndpointType
	}
	b.mu.Lock()
	out := b.batch
	b.mu.Unlock()
	if out == nil {
		return net.ErrClosed
	}
	held := b.pool.Get().(*[]ipv4.Message)
	defer b.pool.Put(held)
	ms := (*held)[:len(bufs)]
	for i := range ms {
		b.crossed.sent(bufs[i])
		ms[i] = ipv4.Message{Buffers: append(ms[i].Buffers[:0], bufs[i]), Addr: to.addr}
	}
	for len(ms) > 0 {
		n, err := out.WriteBatch(ms, 0)
		if err != nil {
			return err
		}
		ms = ms[n:]
	}
	return nil
}

func (b *bind) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn == nil {
		return nil
	}
	err := b.conn.Close()
	b.conn, b.batch = nil, nil
	return err
}

func (b *bind) SetMark(mark uint32) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mark = int(mark)
	return nil
}

func (b *bind) BatchSize() int { return conn.IdealBatchSize }

func (b *bind) ParseEndpoint(s string) (conn.Endpoint, error) {
	a, err := netip.ParseAddrPort(s)
	if err != nil {
		return nil, err
	}
	return &endpoint{addr: net.UDPAddrFromAddrPort(a)}, nil
}

// An endpoint is the other end's outer address.
type endpoint struct{ addr *net.UDPAddr }

func (e *endpoint) ClearSrc()           {}
func (e *endpoint) SrcToString() string { return "" }
func (e *endpoint) DstToString() string { return e.addr.String() }
func (e *endpoint) SrcIP() netip.Addr   { return netip.Addr{} }
func (e *endpoint) DstIP() netip.Addr   { return e.addr.AddrPort().Addr().Unmap() }
func (e *endpoint) DstToBytes() []byte {
	b, _ := netip.AddrPortFrom(e.DstIP(), uint16(e.addr.Port)).MarshalBinary()
	return b
}
