package serve

import (
	"encoding/binary"
	"encoding/json"
	"math/rand/v2"
	"net/netip"
	"time"

	"godwit/lab/traffic/record"
)

const (
	// mostFlows is how many flows are counted at once; the one silent longest goes first.
	mostFlows = 256
	// memory is how many numbers behind the highest a repeated record is recognised.
	memory = 1 << 14
)

// counts is the udp service: what arrived of each flow. A flow is known by the
// seed in its records and not by its address, which a moving client changes.
type counts struct {
	flows map[uint32]*count
}

// count is one flow's.
type count struct {
	record.UDPStats
	last int64 // arrival by the guest's clock, ns
	seen [memory / 64]uint64
}

func newCounts() answerer { return &counts{flows: map[uint32]*count{}} }

func (s *counts) answer(_ netip.AddrPort, datagram []byte) []byte {
	h, ok := record.Parse(datagram)
	body := datagram[min(len(datagram), record.HeaderSize):]
	if !ok || int(h.Length) != len(body) || len(body) < 4 {
		return nil
	}
	seed := binary.BigEndian.Uint32(body)
	switch h.Kind {
	case record.Data:
		s.flow(seed).arrive(h.Number, seed, body[4:])
	case record.Stats:
		c := s.flows[seed]
		if c == nil {
			c = &count{}
		}
		text, err := json.Marshal(c.UDPStats)
		if err != nil {
			return nil
		}
		return record.Append(nil, record.Stats, h.Number, append(body[:4:4], text...))
	}
	return nil
}

func (s *counts) flow(seed uint32) *count {
	if c := s.flows[seed]; c != nil {
		return c
	}
	if len(s.flows) >= mostFlows {
		var oldest uint32
		first := true
		for k, c := range s.flows {
			if first || c.last < s.flows[oldest].last {
				oldest, first = k, false
			}
		}
		delete(s.flows, oldest)
	}
	c := &count{UDPStats: record.UDPStats{Counter: max(1, rand.Uint32())}}
	s.flows[seed] = c
	return c
}

// arrive counts one record.
func (c *count) arrive(number uint64, seed uint32, body []byte) {
	if !record.Intact(seed, number, body) {
		c.Corrupt++
		return
	}
	now := clock()
	if c.Next > 0 {
		c.LongestGap = max(c.LongestGap, time.Duration(now-c.last))
	}
	c.last = now
	known := true // whether it came before
	switch {
	case number >= c.Next:
		c.forget(number)
		c.Next = number + 1
	case c.Next-number > memory:
		c.Late++
		known = false // its place is a newer one's
	case c.seen[number%memory/64]&(1<<(number%64)) != 0:
		c.Repeated++
		return
	default:
		c.Late++
	}
	if known {
		c.seen[number%memory/64] |= 1 << (number % 64)
	}
	c.Received++
	c.Bytes += uint64(len(body))
}

// forget makes room in the ring for the numbers up to number.
func (c *count) forget(number uint64) {
	if number-c.Next >= memory {
		c.seen = [memory / 64]uint64{}
		return
	}
	for n := c.Next; n <= number; n++ {
		c.seen[n%memory/64] &^= 1 << (n % 64)
	}
}
