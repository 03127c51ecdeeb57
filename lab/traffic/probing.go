package traffic

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"godwit/lab/traffic/record"
)

// This file is the prober's child process: it asks and tells what came back.

// tellEvery is how often the child tells what it saw.
const tellEvery = 100 * time.Millisecond

// Reply is the answer to one probe.
type Reply struct {
	Target netip.Addr `json:"a"`
	Sent   int64      `json:"s"` // unix ns
	Time   int64      `json:"t"` // of arrival, unix ns
}

// probed is what happened since the last message.
type probed struct {
	Until   int64   `json:"until"` // unix ns
	Replies []Reply `json:"replies,omitempty"`
}

// probing is the state of the child.
type probing struct {
	out   outbox
	socks map[bool]*net.UDPConn // by: is IPv6

	mu      sync.Mutex
	targets []netip.Addr
	seen    probed
	number  uint64
	asked   map[uint64]netip.Addr // of the last 2^16 probes
}

// remembered is how many probes may still be answered: minutes of them.
const remembered = 1 << 16

// serveProber asks until in ends.
func serveProber(in io.Reader, out io.Writer) int {
	p := &probing{out: outbox{enc: json.NewEncoder(out)}, socks: map[bool]*net.UDPConn{}, asked: map[uint64]netip.Addr{}}
	orders := json.NewDecoder(in)
	done := make(chan struct{})
	defer close(done)
	go p.tellAll(done) // from the start: who waits to know of a time in which nobody was asked hears that it is over
	running := false
	for {
		var o order
		if orders.Decode(&o) != nil {
			return 0
		}
		if o.Op != "targets" {
			p.out.send(message{ID: o.ID, Error: "unknown order " + o.Op})
			continue
		}
		if err := p.listenFor(o.Targets); err != nil {
			p.out.send(message{ID: o.ID, Error: err.Error()})
			continue
		}
		p.mu.Lock()
		p.targets = o.Targets
		p.mu.Unlock()
		if !running {
			running = true
			go p.askAll(o.Every, done)
		}
		p.out.send(message{ID: o.ID})
	}
}

// listenFor opens the sockets that these targets need. They are not connected:
// the client's own address may change.
func (p *probing) listenFor(targets []netip.Addr) error {
	for _, t := range targets {
		network := "udp4"
		if t.Is6() {
			network = "udp6"
		}
		if p.socks[t.Is6()] != nil {
			continue
		}
		c, err := listenProbe(network)
		if err != nil {
			return err
		}
		p.mu.Lock()
		p.socks[t.Is6()] = c
		p.mu.Unlock()
		go p.hear(c)
	}
	return nil
}

// listenProbe takes the first of the probers' ports that is free.
func listenProbe(network string) (c *net.UDPConn, err error) {
	for port := record.PortProbeFirst; port <= record.PortProbeLast; port++ {
		if c, err = net.ListenUDP(network, &net.UDPAddr{Port: port}); err == nil {
			return c, nil
		}
	}
	return nil, err
}

func (p *probing) askAll(every time.Duration, done <-chan struct{}) {
	pace := record.NewPace(every, true)
	defer pace.Stop()
	for pace.Wait(done) {
		p.mu.Lock()
		targets := p.targets
		p.mu.Unlock()
		for _, t := range targets {
			p.probe(t)
		}
	}
}

func (p *probing) probe(t netip.Addr) {
	p.mu.Lock()
	number, sock := p.number, p.socks[t.Is6()]
	p.number++
	p.asked[number] = t
	delete(p.asked, number-remembered)
	p.mu.Unlock()
	headers := 20 + 8 + record.HeaderSize
	if t.Is6() {
		headers += 20
	}
	sent := make([]byte, record.ProbePacket-headers)
	binary.BigEndian.PutUint64(sent, uint64(now()))
	// No route for a while is as good as no answer.
	_, _ = sock.WriteToUDPAddrPort(record.Append(nil, record.Ping, number, sent), netip.AddrPortFrom(t, record.PortEcho))
}

func (p *probing) hear(c *net.UDPConn) {
	buf := make([]byte, 256)
	for {
		n, _, err := c.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		at := now()
		if err != nil || n < record.HeaderSize+8 {
			continue
		}
		h, ok := record.Parse(buf[:n])
		if !ok || h.Kind != record.Ping {
			continue
		}
		p.mu.Lock()
		if t, known := p.asked[h.Number]; known {
			delete(p.asked, h.Number) // a repeated answer counts once
			sent := int64(binary.BigEndian.Uint64(buf[record.HeaderSize:]))
			p.seen.Replies = append(p.seen.Replies, Reply{Target: t, Sent: sent, Time: at})
		}
		p.mu.Unlock()
	}
}

func (p *probing) tellAll(done <-chan struct{}) {
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		p.mu.Lock()
		told := p.seen
		told.Until = now()
		p.seen = probed{}
		p.mu.Unlock()
		p.out.send(message{Probed: &told})
	}
}
