// Package dump reads whole lists out of the kernel. A list that changes while it is
// read comes with the flag NLM_F_DUMP_INTR (include/uapi/linux/netlink.h): entries may
// be missing or stand twice, and the reader must begin again.
package dump

import (
	"errors"
	"time"

	"github.com/vishvananda/netlink"
)

const (
	tries = 10
	pause = time.Millisecond // before the second try; the others wait longer by as much
)

// Interrupted is what a list says that changed while it was read.
var Interrupted = netlink.ErrDumpInterrupted

// Whole calls list until the kernel answers without an interruption, ten times at
// most and for less than 50 ms of waiting. Its error is list's last.
func Whole[T any](list func() (T, error)) (T, error) {
	for try := 1; ; try++ {
		all, err := list()
		if try == tries || !errors.Is(err, Interrupted) {
			return all, err
		}
		time.Sleep(time.Duration(try) * pause)
	}
}

// Links lists all links of this namespace.
func Links() ([]netlink.Link, error) { return Whole(netlink.LinkList) }

// Addrs lists a link's addresses of a family (netlink.FAMILY_ALL: both), those of all
// links if link is nil.
func Addrs(link netlink.Link, family int) ([]netlink.Addr, error) {
	return Whole(func() ([]netlink.Addr, error) { return netlink.AddrList(link, family) })
}
