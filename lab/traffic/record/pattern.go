package record

import "bytes"

// The pattern is two times 64 KiB of fixed noise. A record is a window into it
// whose place follows from its number, so that a record costs no computing
// (guests run under emulation) and neighbours differ in every byte.
var block = noise()

const (
	window = 64 << 10
	stride = 40503 // odd: 65536 numbers in a row start at different places
)

func noise() []byte {
	b := make([]byte, window+MaxPayload)
	x := uint64(0x9e3779b97f4a7c15)
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x >> 32)
	}
	return b
}

// Payload returns the size bytes that record number of the stream with this
// seed carries; size is at most MaxPayload. The bytes are shared: don't write.
func Payload(seed uint32, number uint64, size int) []byte {
	at := (number*stride + uint64(seed)) % window
	return block[at : at+uint64(size) : at+uint64(size)]
}

// Intact reports whether b is what Payload gives.
func Intact(seed uint32, number uint64, b []byte) bool {
	return len(b) <= MaxPayload && bytes.Equal(b, Payload(seed, number, len(b)))
}
