package topo

import (
	"errors"
	"fmt"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"godwit/netstate/dump"
	"godwit/netstate/netns"
)

// DropDevices removes the devices of a namespace whose names begin with prefix, as a host
// that reboots loses those that are not its own.
func DropDevices(namespace, prefix string) error {
	return netns.Do(namespace, func() error {
		links, err := dump.Links()
		for _, l := range links {
			if !strings.HasPrefix(l.Attrs().Name, prefix) {
				continue
			}
			// A tap goes by itself when the last process that had it has ended.
			if derr := netlink.LinkDel(l); derr != nil && !errors.Is(derr, unix.ENODEV) {
				err = errors.Join(err, fmt.Errorf("remove %s: %w", l.Attrs().Name, derr))
			}
		}
		return err
	})
}
