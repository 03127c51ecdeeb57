package record

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"
)

// Hello is the first line of a stream: what the client wants. The service
// follows from the port.
type Hello struct {
	// Seed places the pattern; see Payload.
	Seed uint32 `json:"seed"`
	// Size of a record's payload in bytes, 1 to MaxPayload. For requests: of an answer.
	Size int `json:"size"`
	// Every is the time between two ticks, 100 µs to 24 h.
	Every time.Duration `json:"every_ns,omitempty"`
	// Rate of a download in bit/s of records; 0 is as fast as it goes.
	Rate int64 `json:"rate,omitempty"`
}

// Line returns the hello as it is sent.
func (h Hello) Line() []byte {
	b, err := json.Marshal(h)
	if err != nil {
		panic(err) // a struct of numbers always encodes
	}
	return append(b, '\n')
}

// ParseHello reads and checks the line of a client, which is not trusted.
func ParseHello(line []byte) (Hello, error) {
	var h Hello
	if len(line) > MaxHello {
		return h, fmt.Errorf("read hello: longer than %d bytes", MaxHello)
	}
	if err := json.Unmarshal(line, &h); err != nil {
		return h, fmt.Errorf("read hello: %w", err)
	}
	switch {
	case h.Size < 1 || h.Size > MaxPayload:
		return h, fmt.Errorf("read hello: size %d is not 1 to %d", h.Size, MaxPayload)
	case h.Every != 0 && (h.Every < 100*time.Microsecond || h.Every > 24*time.Hour):
		return h, fmt.Errorf("read hello: every %v is not 100us to 24h", h.Every)
	case h.Rate < 0:
		return h, fmt.Errorf("read hello: rate %d is negative", h.Rate)
	}
	return h, nil
}

// Note is what the guest's kernel knows of the connection that a Ping came in by.
type Note struct {
	// RTT is the kernel's smoothed round trip of the subflow that was used last; 0 is unknown.
	RTT time.Duration
	// Retransmits of the guest's side since the connection began, all subflows.
	Retransmits uint32
}

// NoteSize is the length of an encoded Note.
const NoteSize = 8

// Append appends the encoded note: RTT in µs and retransmits, each u32.
func (n Note) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(n.RTT.Microseconds()))
	return binary.BigEndian.AppendUint32(b, n.Retransmits)
}

// ParseNote reads a note; false where b is none.
func ParseNote(b []byte) (Note, bool) {
	if len(b) != NoteSize {
		return Note{}, false
	}
	return Note{
		RTT:         time.Duration(binary.BigEndian.Uint32(b)) * time.Microsecond,
		Retransmits: binary.BigEndian.Uint32(b[4:]),
	}, true
}

// UDPStats is what the udp service counted of one flow.
type UDPStats struct {
	// Counter is this count's own number, at random: a guest that boots anew has forgotten the one before, and
	// counts from nothing. 0: nothing was counted.
	Counter uint32 `json:"counter"`
	// Received counts different records that arrived intact; Bytes their payloads.
	Received uint64 `json:"received"`
	Bytes    uint64 `json:"bytes"`
	// Repeated records came again, Late ones after one with a higher number.
	Repeated uint64 `json:"repeated"`
	Late     uint64 `json:"late"`
	// Corrupt records had a wrong byte and are not in Received.
	Corrupt uint64 `json:"corrupt"`
	// Next is one more than the highest number seen.
	Next uint64 `json:"next"`
	// LongestGap between two arrivals by the guest's own clock, which may
	// stand still while the guest is paused.
	LongestGap time.Duration `json:"longest_gap_ns"`
}
