package agent

import (
	"encoding/hex"
	"io"
)

// newID names a migration: m- and eight hex digits, by random. No other of this host has had it: eight are few, and the
// history knows each by its id for good.
func (a *Agent) newID(random io.Reader) string {
	for {
		var b [4]byte
		io.ReadFull(random, b[:]) //nolint:errcheck // does not fail
		id := "m-" + hex.EncodeToString(b[:])
		if _, known := a.records.Report(id); !known {
			return id
		}
	}
}
