package wire

import "encoding/binary"

// Range is the numbers First … Last.
type Range struct{ First, Last uint64 }

// Ack is what its sender has taken. Stamp, Echo and Held in ns.
type Ack struct {
	Frames   uint64 // 1 … Frames
	Controls uint64 // 1 … Controls
	Read     uint64 // bytes of this lane
	Stamp    uint64
	Echo     uint64
	Held     uint64
	Ranges   []Range // frames above Frames
}

// AppendAck appends a; of more than MaxRanges ranges the first.
func AppendAck(b []byte, a Ack) []byte {
	at := len(b)
	b = begin(b, KindAck)
	for _, v := range []uint64{a.Frames, a.Controls, a.Read, a.Stamp, a.Echo, a.Held} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	ranges := a.Ranges[:min(len(a.Ranges), MaxRanges)]
	b = binary.BigEndian.AppendUint16(b, uint16(len(ranges))) //nolint:gosec // at most MaxRanges
	for _, r := range ranges {
		b = binary.BigEndian.AppendUint64(b, r.First)
		b = binary.BigEndian.AppendUint64(b, r.Last)
	}
	return end(b, at)
}

// ParseAck reads an Ack's body: ranges ascend and neither touch nor overlap.
func ParseAck(body []byte) (Ack, error) {
	r := reader{b: body}
	a := Ack{Frames: r.u64(), Controls: r.u64(), Read: r.u64(), Stamp: r.u64(), Echo: r.u64(), Held: r.u64()}
	n := int(r.u16())
	if n > MaxRanges || len(r.b) != 16*n {
		return Ack{}, malformed("ack of %d ranges in %d bytes", n, len(body))
	}
	taken := a.Frames
	for range n {
		next := Range{r.u64(), r.u64()}
		if next.First <= taken || next.First-taken < 2 || next.Last < next.First {
			return Ack{}, malformed("ack of %d … %d after %d", next.First, next.Last, taken)
		}
		taken = next.Last
		a.Ranges = append(a.Ranges, next)
	}
	return a, r.done("ack")
}
