package netns

import (
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Handle returns a routing netlink handle whose socket lives in the namespace name:
// no thread needs to be inside to use it. The caller closes it.
func Handle(name string) (*netlink.Handle, error) {
	var handle *netlink.Handle
	err := Do(name, func() (err error) {
		handle, err = netlink.NewHandle(unix.NETLINK_ROUTE)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open netlink in namespace %q: %w", name, err)
	}
	return handle, nil
}
