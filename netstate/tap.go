package netstate

import (
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// OpenTap makes the tap name for a guest's NIC: one queue with virtio-net headers
// as QEMU wants it (QEMU sets header size and offloads itself), room for queueLen
// frames while nobody reads, the given MTU, port of bridge ("": of none), up. It
// lives as long as the descriptor or any copy of it is open; QEMU inherits one,
// the agent keeps one. On failure nothing is left.
func OpenTap(name string, queueLen int, bridge string, mtu int) (*os.File, error) {
	if err := device("tap", name); err != nil {
		return nil, fmt.Errorf("open %w", err)
	}
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	file := os.NewFile(uintptr(fd), "tap "+name)
	if err := setUpTap(fd, name, queueLen, bridge, mtu); err != nil {
		file.Close()
		return nil, fmt.Errorf("open tap %s: %w", name, err)
	}
	return file, nil
}

func setUpTap(fd int, name string, queueLen int, bridge string, mtu int) error {
	req, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	if _, err := netlink.LinkByName(name); err == nil {
		return unix.EEXIST
	}
	req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR | unix.IFF_TUN_EXCL)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		return err
	}
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	// The host must not speak IPv6 into the guest: nothing but the guest's own
	// packets belongs in its queue.
	if _, err := os.Stat("/proc/sys/net/ipv6"); err == nil {
		if err := writeSysctl("ipv6/conf/"+name+"/disable_ipv6", "1"); err != nil {
			return err
		}
	}
	if err := netlink.LinkSetTxQLen(link, queueLen); err != nil {
		return fmt.Errorf("set queue length %d: %w", queueLen, err)
	}
	if err := netlink.LinkSetMTU(link, mtu); err != nil {
		return fmt.Errorf("set mtu %d: %w", mtu, err)
	}
	if bridge != "" {
		master, err := netlink.LinkByName(bridge)
		if err != nil {
			return fmt.Errorf("find bridge %s: %w", bridge, err)
		}
		if err := netlink.LinkSetMaster(link, master); err != nil {
			return fmt.Errorf("join bridge %s: %w", bridge, err)
		}
	}
	return netlink.LinkSetUp(link)
}

// BridgeOf names the bridge that device is a port of, "" if it is none's.
func BridgeOf(name string) (string, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return "", fmt.Errorf("look at device %s: %w", name, err)
	}
	if link.Attrs().MasterIndex == 0 {
		return "", nil
	}
	master, err := netlink.LinkByIndex(link.Attrs().MasterIndex)
	if err != nil {
		return "", fmt.Errorf("look at the bridge of %s: %w", name, err)
	}
	return master.Attrs().Name, nil
}
