package wire

import (
	"bytes"
	"crypto/subtle"
	"fmt"
)

const magic = "GODWITLN"

// Key is made at random for one migration, and known to its two ends alone.
type Key [32]byte

// Hello opens a lane.
type Hello struct {
	Lowest, Highest uint8  // versions
	Migration       string // 1 … 64 bytes
	Key             Key
	Path            string // name of the pair of uplinks that the lane takes, 0 … 64 bytes
}

// AppendHello appends h. A name that is too long is cut: of a path, that counts by what is left
// of it; of a migration, that is another one, which the other end refuses.
func AppendHello(b []byte, h Hello) []byte {
	at := len(b)
	b = append(begin(b, KindHello), magic...)
	b = append(b, h.Lowest, h.Highest)
	b = appendName(b, h.Migration)
	b = append(b, h.Key[:]...)
	return end(appendName(b, h.Path), at)
}

func appendName(b []byte, s string) []byte {
	s = s[:min(len(s), maxName)]
	return append(append(b, byte(len(s))), s...) //nolint:gosec // at most maxName
}

// ParseHello reads a Hello's body.
func ParseHello(body []byte) (Hello, error) {
	r := reader{b: body}
	if !bytes.Equal(r.take(len(magic)), []byte(magic)) {
		return Hello{}, malformed("hello of something else")
	}
	h := Hello{Lowest: r.u8(), Highest: r.u8()}
	h.Migration = r.name()
	copy(h.Key[:], r.take(len(h.Key)))
	h.Path = r.name()
	if err := r.done("hello"); err != nil {
		return Hello{}, err
	}
	if h.Lowest == 0 || h.Lowest > h.Highest || h.Migration == "" {
		return Hello{}, malformed("hello of versions %d to %d for migration %q", h.Lowest, h.Highest, h.Migration)
	}
	return h, nil
}

// Answer checks h against what the other end expects, and returns the version to speak.
// The error's text may be said in a Bye.
func (h Hello) Answer(migration string, key Key) (uint8, error) {
	if h.Migration != migration || subtle.ConstantTimeCompare(h.Key[:], key[:]) != 1 {
		return 0, fmt.Errorf("lane for migration %q: not the one that is expected here", h.Migration)
	}
	if h.Lowest > Version || h.Highest < Oldest {
		return 0, fmt.Errorf("lane speaks versions %d to %d, this end %d to %d; bring both hosts to the same release", h.Lowest, h.Highest, Oldest, Version)
	}
	return min(h.Highest, Version), nil
}
