// Package probe finds out what a path between two hosts carries: whether a packet of a size gets
// there, in fragments if need be, how long the way there and back takes, and how large a packet may be
// to pass in one piece. One host reflects UDP datagrams (Reflector), the other sends them. Whoever
// sends must know a token that the first gave out lately, so nobody else is answered.
package probe

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"godwit/internal/lasting"
	"godwit/migration"
)

// TokenLength is that of the secret that a probe must carry, bytes.
const TokenLength = 16

// Reflector answers probes of a path: UDP datagrams that begin with a token that
// this agent gave out lately are sent back as they are. It shows that a path
// carries packets of a size, in fragments if need be, and what its RTT is.
type Reflector struct {
	like map[netip.Addr]uint16 // ports as tunnels have them, by address

	mu     sync.Mutex
	tokens map[[TokenLength]byte]time.Time // until when each is good
}

// tokenLife bounds how long a token is good.
const tokenLife = 30 * time.Second

// Reflect answers at every address, and at one more port of each (LikeTunnels), until ctx ends, also
// where no device has the address yet. On error it answers nowhere once ctx has ended.
func Reflect(ctx context.Context, addrs []netip.AddrPort) (*Reflector, error) {
	r := &Reflector{tokens: map[[TokenLength]byte]time.Time{}, like: map[netip.Addr]uint16{}}
	for _, a := range addrs {
		if _, err := r.listen(ctx, a); err != nil {
			return nil, err
		}
		port, err := r.listen(ctx, netip.AddrPortFrom(a.Addr(), 0))
		if err != nil {
			return nil, err
		}
		r.like[a.Addr()] = port
	}
	return r, nil
}

// LikeTunnels is the port at which addr, one of Reflect's, answers as tunnels do: any free one. A
// firewall that lets the agents' own port through need not let theirs. 0: nothing listens there.
func (r *Reflector) LikeTunnels(addr netip.Addr) uint16 { return r.like[addr] }

// listen answers at a, and returns its port.
func (r *Reflector) listen(ctx context.Context, a netip.AddrPort) (uint16, error) {
	conn, err := udpAt(ctx, a, lasting.Early)
	if err != nil {
		return 0, fmt.Errorf("listen for probes on %s: %w", a, err)
	}
	context.AfterFunc(ctx, func() { conn.Close() })
	go r.serve(conn)
	return conn.LocalAddr().(*net.UDPAddr).AddrPort().Port(), nil
}

// udpAt opens a UDP socket whose packets may be fragmented (no DF), and that controls set up further.
func udpAt(ctx context.Context, a netip.AddrPort, controls ...func(network, address string, c syscall.RawConn) error) (*net.UDPConn, error) {
	lc := net.ListenConfig{Control: func(network, address string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) {
			if a.Addr().Is4() {
				failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DONT)
			}
		})
		err = errors.Join(err, failed)
		for _, control := range controls {
			err = errors.Join(err, control(network, address, c))
		}
		return err
	}}
	conn, err := lc.ListenPacket(ctx, "udp", a.String())
	if err != nil {
		return nil, err
	}
	return conn.(*net.UDPConn), nil
}

// datagrams is what serve needs of a UDP socket.
type datagrams interface {
	ReadFromUDPAddrPort(b []byte) (int, netip.AddrPort, error)
	WriteToUDPAddrPort(b []byte, to netip.AddrPort) (int, error)
}

// readAgain is between tries to read what could not be, such as where the host had no memory for it: no guest would
// come by this host if nobody read any more.
const readAgain = 100 * time.Millisecond

// serve answers until conn is closed.
func (r *Reflector) serve(conn datagrams) {
	buf := make([]byte, 64<<10)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(readAgain)
			continue
		}
		if n >= TokenLength && r.good([TokenLength]byte(buf[:TokenLength])) {
			conn.WriteToUDPAddrPort(buf[:n], from) //nolint:errcheck // a probe that is lost is tried again
		}
	}
}

// Token makes a new one, good for half a minute.
func (r *Reflector) Token() []byte {
	var t [TokenLength]byte
	rand.Read(t[:]) //nolint:errcheck // does not fail
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for old, until := range r.tokens {
		if now.After(until) {
			delete(r.tokens, old)
		}
	}
	r.tokens[t] = now.Add(tokenLife)
	return t[:]
}

func (r *Reflector) good(t [TokenLength]byte) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Now().Before(r.tokens[t])
}

// A probe is sent again and again, so that a path that loses much is told from one that
// carries nothing, and answers may take as long as all of that does.
const (
	probeTries = 14
	probeEvery = 200 * time.Millisecond // or at once when the one before is answered
	probeLimit = probeTries * probeEvery
	probeGood  = 2 // answers are enough
	smallTries = 5 // of Least, where nothing is answered: they tell whether the size is why
)

// RoundTrip sends datagrams of size bytes (IP packet) from local to the reflector at remote, and returns the shortest
// round trip, of one answer alone where ctx ends before the next. No answer within 2.8 s is a *migration.Problem of
// code path.
func RoundTrip(ctx context.Context, local netip.Addr, remote netip.AddrPort, token []byte, size int) (time.Duration, error) {
	best, err := roundTrip(ctx, local, remote, token, size, probeTries)
	if err != nil || best > 0 {
		return best, err
	}
	why := fmt.Sprintf("no packet is answered within %v: an uplink is down, or a firewall takes no UDP to port %d; mend it, let that pass, or use a faster path",
		probeLimit, remote.Port())
	if size > Least {
		if small, err := roundTrip(ctx, local, remote, token, Least, smallTries); err == nil && small > 0 {
			why = fmt.Sprintf("a packet of %d bytes neither fits nor passes in fragments, and one of %d bytes is answered; raise the MTU, or let fragments pass", size, Least)
		}
	}
	return 0, &migration.Problem{Code: migration.CodePath, Text: fmt.Sprintf("path %s → %s: %s", local, remote.Addr(), why)}
}

// roundTrip sends so many datagrams at most; 0: none was answered.
func roundTrip(ctx context.Context, local netip.Addr, remote netip.AddrPort, token []byte, size, tries int) (time.Duration, error) {
	conn, err := udpAt(ctx, netip.AddrPortFrom(local, 0))
	if err != nil {
		return 0, fmt.Errorf("probe path from %s: %w", local, err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	p := prober{conn: conn, payload: make([]byte, max(size-headers(local), TokenLength+1)), tries: tries, end: time.Now().Add(time.Duration(tries) * probeEvery)}
	p.answer = make([]byte, len(p.payload)+1)
	copy(p.payload, token)
	best, answers := time.Duration(0), 0
	for answers < probeGood && time.Now().Before(p.end) {
		rtt, err := p.try(remote)
		if ctx.Err() != nil {
			if err = context.Cause(ctx); best > 0 { // a long path, or one that loses much
				return best, nil
			}
		}
		if err != nil {
			return 0, fmt.Errorf("probe path from %s: %w", local, err)
		}
		if rtt == 0 {
			continue
		}
		answers++
		if best == 0 || rtt < best {
			best = rtt
		}
	}
	return best, nil
}

// prober is one end of a path that is probed.
type prober struct {
	conn    *net.UDPConn
	payload []byte // the token, the number of the try, and zeros
	answer  []byte // has room for one
	sent    []time.Time
	tries   int
	end     time.Time
}

// try sends once more, while tries are left, and waits for an answer to any: its round
// trip, or 0.
func (p *prober) try(remote netip.AddrPort) (time.Duration, error) {
	until := p.end
	if number := len(p.sent); number < p.tries {
		p.payload[TokenLength] = byte(number)
		p.sent = append(p.sent, time.Now())
		if _, err := p.conn.WriteToUDPAddrPort(p.payload, remote); err != nil {
			return 0, err
		}
		if next := time.Now().Add(probeEvery); next.Before(until) {
			until = next
		}
	}
	if err := p.conn.SetReadDeadline(until); err != nil {
		return 0, err
	}
	for {
		n, _, err := p.conn.ReadFromUDPAddrPort(p.answer)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		number := 0
		if n == len(p.payload) {
			number = int(p.answer[TokenLength])
			p.answer[TokenLength] = p.payload[TokenLength]
		}
		if bytes.Equal(p.answer[:n], p.payload) && number < len(p.sent) {
			return time.Since(p.sent[number]), nil
		}
	}
}
