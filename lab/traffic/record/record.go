// Package record is what the lab's traffic says on the wire, between a client
// and the services inside a guest.
//
// # Streams (TCP)
//
// The client opens with one line of JSON (Hello, at most MaxHello bytes, ended
// by '\n'). After it both directions carry frames:
//
//	0  u8   magic, 0x67
//	1  u8   kind
//	2  u8   flags
//	3  u8   0
//	4  u32  length of the payload, at most MaxPayload
//	8  u64  number
//	16 u32  CRC-32C of the 16 bytes before
//	20      payload
//
// Integers are big-endian. The payload of Data, Ask and Answer is
// Payload(seed, number, length): both ends know every byte that must arrive.
// Data numbers start at 0 and grow by one.
//
// # Datagrams (UDP)
//
// One frame each; Data and Stats frames of the udp service put the flow's seed
// into the first 4 bytes of the payload. The echo service returns any
// datagram as it came.
package record

import (
	"encoding/binary"
	"hash/crc32"

	"godwit/vm/guest"
)

// Ports of the services.
const (
	PortTicks    = 7001
	PortDownload = 7002
	PortUpload   = 7003
	PortRequests = 7004
	PortUDP      = 7005
	PortEcho     = guest.PortEcho
	// Probers send from these ports, so that their packets can be told from clients'.
	PortProbeFirst = 7100
	PortProbeLast  = 7163
)

// Sizes, in bytes.
const (
	HeaderSize = 20
	MaxPayload = 64 << 10
	MaxHello   = 512
	// ProbePacket is the length of a prober's IP packets, of IPv4 as of IPv6: one that
	// no other record has, padded to 16, so that they are told from clients' where only that is seen.
	ProbePacket = 240
)

const magic = 0x67

// Kind says what a frame is.
type Kind uint8

const (
	// Data is a numbered record.
	Data Kind = 1 + iota
	// Ping asks for a Pong with the same number, in the same stream.
	Ping
	// Pong answers a Ping; its payload is a Note.
	Pong
	// Ack says that the Data frame of this number arrived.
	Ack
	// Ask wants an Answer of the same number.
	Ask
	// Answer answers an Ask.
	Answer
	// Refused ends a stream: the payload is the reason, as text.
	Refused
	// Stats asks the udp service what it counted, and is its answer (JSON UDPStats).
	Stats
)

// Corrupt is the flag of an Ack whose Data frame had a wrong byte.
const Corrupt = 1

// Header is the head of a frame.
type Header struct {
	Kind   Kind
	Flags  uint8
	Length uint32
	Number uint64
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Put writes the header into the first HeaderSize bytes of b.
func (h Header) Put(b []byte) {
	b[0], b[1], b[2], b[3] = magic, byte(h.Kind), h.Flags, 0
	binary.BigEndian.PutUint32(b[4:], h.Length)
	binary.BigEndian.PutUint64(b[8:], h.Number)
	binary.BigEndian.PutUint32(b[16:], crc32.Checksum(b[:16], castagnoli))
}

// Parse reads a header from b. It is false where b holds no valid one.
func Parse(b []byte) (Header, bool) {
	if len(b) < HeaderSize || b[0] != magic {
		return Header{}, false
	}
	if binary.BigEndian.Uint32(b[16:]) != crc32.Checksum(b[:16], castagnoli) {
		return Header{}, false
	}
	h := Header{
		Kind: Kind(b[1]), Flags: b[2],
		Length: binary.BigEndian.Uint32(b[4:]), Number: binary.BigEndian.Uint64(b[8:]),
	}
	return h, h.Length <= MaxPayload
}

// Append appends a whole frame with this payload to b.
func Append(b []byte, kind Kind, number uint64, payload []byte) []byte {
	var head [HeaderSize]byte
	Header{Kind: kind, Length: uint32(len(payload)), Number: number}.Put(head[:])
	return append(append(b, head[:]...), payload...)
}
