package agent

import (
	"crypto/rand"
	"encoding/hex"
	"hash/fnv"
)

// newID names a migration: m- and eight hex digits.
func newID() string {
	var b [4]byte
	rand.Read(b[:]) //nolint:errcheck // does not fail
	return "m-" + hex.EncodeToString(b[:])
}

// hashID shortens any id to the form of a migration's, for device names.
func hashID(id string) string {
	h := fnv.New32a()
	h.Write([]byte(id))
	return "m-" + hex.EncodeToString(h.Sum(nil))
}
