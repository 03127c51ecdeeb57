// Package lanes opens lanes from one host to another: connections that carry a migration's memory, or one of its disks,
// together, one over each pair of uplinks (package paths says what goes by them). Each may send so many bytes per
// second; what one does not send of an uplink that it shares the others get, and what guests' clients leave of a path
// that is theirs too.
//
// A lane that cannot be opened, or ends, is no error of this package: package paths opens it again, by Lane.Open. A
// host that does not want them says why, once (Refuse), which ends all of them at the other end.
package lanes

import (
	"crypto/rand"
	"net"
	"time"

	"godwit/migration"
	"godwit/transfer/paths"
	"godwit/transfer/wire"
)

// What a lane carries: the Kind of its peer.Header.
const (
	Memory = "lane"
	Disk   = "disk-lane"
)

// NewKey is made for the lanes of one migration, by its source.
func NewKey() []byte {
	key := make([]byte, len(wire.Key{}))
	rand.Read(key) //nolint:errcheck // it does not fail
	return key
}

// Identity is what both ends of lanes know: whose they are, and a key that came from the other host. The error is a
// migration.Problem: it is none.
func Identity(whose string, key []byte) (paths.Identity, error) {
	id := paths.Identity{Migration: whose}
	if len(key) != len(id.Key) {
		return id, &migration.Problem{Code: migration.CodePeer, Text: "prepare: the lanes' key is not one; bring both hosts to the same release"}
	}
	copy(id.Key[:], key)
	return id, nil
}

// Refuse answers a lane that came here: everything at the other end of it ends, and says why.
func Refuse(lane net.Conn, why string) {
	lane.SetDeadline(time.Now().Add(time.Second)) //nolint:errcheck // it is closed in any case
	if _, _, err := wire.Read(lane, nil); err != nil {
		return
	}
	lane.Write(wire.AppendBye(nil, why)) //nolint:errcheck // as above
}
