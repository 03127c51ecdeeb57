package agent

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"godwit/migration"
	"godwit/transfer/paths"
)

// fullDisks are what the kernel says of a disk that has no room.
var fullDisks = []error{unix.ENOSPC, unix.EDQUOT}

// diskFull says whether what carries a guest has ended as a disk has no room: this host's, or the other end's, which
// says so in words.
func diskFull(err error) (here, there bool) {
	peer := (*paths.PeerError)(nil)
	said := errors.As(err, &peer)
	for _, full := range fullDisks {
		here = here || errors.Is(err, full)
		there = there || said && strings.Contains(peer.Text, full.Error())
	}
	return here && !there, there
}

// codeOf is the code of a guest that did not arrive whole, by what its lanes ended by; nil: QEMU's doing.
func codeOf(lanes error) migration.Code {
	if here, there := diskFull(lanes); here || there {
		return migration.CodeCapacity
	}
	return migration.CodeHypervisor
}
