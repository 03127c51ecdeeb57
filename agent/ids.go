package agent

import (
	"crypto/rand"
	"encoding/hex"
)

// newID names a migration: m- and eight hex digits.
func newID() string {
	var b [4]byte
	rand.Read(b[:]) //nolint:errcheck // does not fail
	return "m-" + hex.EncodeToString(b[:])
}
