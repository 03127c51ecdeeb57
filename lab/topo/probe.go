package topo

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"godwit/netstate/netns"

	"golang.org/x/sys/unix"
)

// probe measures the path between the first uplinks of two hosts.
type probe struct{ from, to Host }

// datagrams opens a UDP socket at the far host and one connected to it at the near.
func (p probe) datagrams() (near, far *net.UDPConn, err error) {
	err = netns.Do(p.to.Namespace, func() (err error) {
		far, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(p.to.Uplinks[0].V4, 0)))
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	err = netns.Do(p.from.Namespace, func() (err error) {
		near, err = net.DialUDP("udp", nil, far.LocalAddr().(*net.UDPAddr))
		return err
	})
	if err != nil {
		far.Close()
		return nil, nil, err
	}
	return near, far, nil
}

// rtt is the median of 40 round trips, one after the other; the first is left out, for
// it waits for neighbour discovery.
func (p probe) rtt(ctx context.Context) (time.Duration, error) {
	near, far, err := p.datagrams()
	if err != nil {
		return 0, err
	}
	defer near.Close()
	var echo sync.WaitGroup
	echo.Go(func() {
		buf := make([]byte, 64)
		for {
			n, from, err := far.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			_, _ = far.WriteToUDPAddrPort(buf[:n], from)
		}
	})
	defer echo.Wait()
	defer far.Close()
	var all []time.Duration
	buf := make([]byte, 64)
	for i := range 41 {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		start := time.Now()
		_ = near.SetDeadline(start.Add(2 * time.Second))
		if _, err := near.Write(buf); err != nil {
			return 0, err
		}
		if _, err := near.Read(buf); err != nil {
			return 0, fmt.Errorf("wait for echo %d: %w", i, err)
		}
		if i > 0 {
			all = append(all, time.Since(start))
		}
	}
	slices.Sort(all)
	return all[len(all)/2], nil
}

// flows is the number of TCP connections that fill a path together.
const flows = 4

// rate is the rate in bit/s of the IP packets of a few TCP connections, over the time d
// after a warm-up. It counts the packets of 1500 bytes that the far side has, each once
// (tcpi_delivered): bytes read there would come in bursts, one after each repaired loss.
func (p probe) rate(ctx context.Context, warm, d time.Duration) (float64, error) {
	var config net.ListenConfig
	config.SetMultipathTCP(false)
	var listener net.Listener
	if err := netns.Do(p.to.Namespace, func() (err error) {
		listener, err = config.Listen(ctx, "tcp", netip.AddrPortFrom(p.to.Uplinks[0].V4, 0).String())
		return err
	}); err != nil {
		return 0, err
	}
	var workers sync.WaitGroup
	defer workers.Wait()
	defer listener.Close()
	var senders []net.Conn
	for range flows {
		near, far, err := p.connect(ctx, listener)
		if err != nil {
			return 0, err
		}
		defer near.Close()
		defer far.Close()
		senders = append(senders, near)
		workers.Go(func() {
			buf := make([]byte, 256<<10)
			for {
				if _, err := near.Write(buf); err != nil {
					return
				}
			}
		})
		workers.Go(func() { _, _ = io.Copy(io.Discard, far) })
	}
	if err := pause(ctx, warm); err != nil {
		return 0, err
	}
	start := time.Now()
	before, err := delivered(senders)
	if err != nil {
		return 0, err
	}
	if err := pause(ctx, d); err != nil {
		return 0, err
	}
	after, err := delivered(senders)
	var packets float64
	for i := range after {
		packets += float64(after[i] - before[i]) // modulo 2³²
	}
	return packets * 1500 * 8 / time.Since(start).Seconds(), err
}

// delivered returns, per connection, how many packets have arrived at the far side.
func delivered(conns []net.Conn) ([]uint32, error) {
	var counts []uint32
	for _, conn := range conns {
		raw, err := conn.(*net.TCPConn).SyscallConn()
		if err != nil {
			return nil, err
		}
		var info *unix.TCPInfo
		var failed error
		if err := raw.Control(func(fd uintptr) {
			info, failed = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		}); err != nil {
			return nil, err
		}
		if failed != nil {
			return nil, fmt.Errorf("read tcp info: %w", failed)
		}
		counts = append(counts, info.Delivered)
	}
	return counts, nil
}

func (p probe) connect(ctx context.Context, listener net.Listener) (near, far net.Conn, err error) {
	if err := netns.Do(p.from.Namespace, func() (err error) {
		dialer := net.Dialer{Timeout: 5 * time.Second, Control: steady}
		near, err = dialer.DialContext(ctx, "tcp", listener.Addr().String())
		return err
	}); err != nil {
		return nil, nil, err
	}
	if far, err = listener.Accept(); err != nil {
		near.Close()
		return nil, nil, err
	}
	// What is unsent at the end is dropped: it would fill the link for the next trial.
	_ = near.(*net.TCPConn).SetLinger(0)
	return near, far, nil
}

// steady asks for CUBIC, whatever the machine's default: it fills a path that has a
// queue of its bandwidth-delay product, and sends little twice.
func steady(_, _ string, conn syscall.RawConn) error {
	return conn.Control(func(fd uintptr) {
		_ = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "cubic")
	})
}

// lossDatagrams is enough for a loss of 1 % to be found within 5 % (2.7 standard
// deviations); links in user space draw the same losses every time.
const lossDatagrams = 300_000

// loss is the share of datagrams that did not arrive, sent at 50 000 a second.
func (p probe) loss(ctx context.Context) (float64, error) {
	near, far, err := p.datagrams()
	if err != nil {
		return 0, err
	}
	defer near.Close()
	_ = far.SetReadBuffer(4 << 20)
	var arrived atomic.Int64
	var counting sync.WaitGroup
	counting.Go(func() {
		buf := make([]byte, 64)
		for {
			if _, err := far.Read(buf); err != nil {
				return
			}
			arrived.Add(1)
		}
	})
	defer counting.Wait()
	defer far.Close()
	const batch = 100
	start := time.Now()
	buf := make([]byte, 32)
	for sent := 0; sent < lossDatagrams; sent += batch {
		for range batch {
			if _, err := near.Write(buf); err != nil {
				return 0, err
			}
		}
		due := start.Add(time.Duration(sent+batch) * 20 * time.Microsecond)
		if err := pause(ctx, time.Until(due)); err != nil {
			return 0, err
		}
	}
	if err := pause(ctx, 300*time.Millisecond); err != nil {
		return 0, err
	}
	return 1 - float64(arrived.Load())/lossDatagrams, nil
}

// pause waits for d, or less if ctx ends, and says so.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
