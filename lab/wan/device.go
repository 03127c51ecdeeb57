package wan

import (
	"fmt"
	"time"
	"unsafe"

	"godwit/netstate/netns"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// deviceQueue is the number of packets that the kernel keeps until the link's process
// reads them. Long, so that the queue that overflows is the link's own.
const deviceQueue = 10000

// End is one end of a link: a device that the link makes in a namespace.
type End struct {
	Namespace string `json:"namespace"` // "" is the caller's
	Device    string `json:"device"`
}

// device is a TUN device, and the descriptor through which packets leave and enter it.
type device struct {
	end   End
	fd    int
	iov   [2]unix.Iovec
	lost  uint64        // packets that the device dropped before the link had it
	empty time.Duration // when nothing waited to be read, the last time that the link looked
}

// openDevice makes the device of end, up, with the given MTU. It is gone when the
// descriptor is closed.
func openDevice(end End, mtu int) (*device, error) {
	d := &device{end: end, fd: -1}
	err := netns.Do(end.Namespace, func() (err error) {
		if d.fd, err = openTUN(end.Device); err != nil {
			return err
		}
		// No neighbour discovery and no link-local address on a point-to-point device.
		if err := netns.Sysctl("net.ipv6.conf."+end.Device+".addr_gen_mode", "1"); err != nil {
			return err
		}
		link, err := netlink.LinkByName(end.Device)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetMTU(link, mtu); err != nil {
			return err
		}
		if err := netlink.LinkSetTxQLen(link, deviceQueue); err != nil {
			return err
		}
		return netlink.LinkSetUp(link)
	})
	if err != nil {
		d.close()
		return nil, fmt.Errorf("open device %s in %q: %w", end.Device, end.Namespace, err)
	}
	return d, nil
}

// openTUN makes a TUN device in the thread's namespace that gives and takes large
// sends uncut and checksums unfinished.
func openTUN(name string) (int, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	request, err := unix.NewIfreq(name)
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("make tun device: %w", err)
	}
	const tcp = unix.TUN_F_CSUM | unix.TUN_F_TSO4 | unix.TUN_F_TSO6
	const udp = unix.TUN_F_USO4 | unix.TUN_F_USO6 // since Linux 6.2
	if unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, tcp|udp) == nil {
		return fd, nil
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, tcp); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("set offloads of tun device: %w", err)
	}
	return fd, nil
}

func (d *device) close() {
	if d.fd >= 0 {
		unix.Close(d.fd)
		d.fd = -1
	}
}

// read reads one packet, behind its virtio header. ok is false if none waits.
func (d *device) read(room []byte) (n int, ok bool, err error) {
	for {
		n, errno := rawRead(d.fd, room)
		switch errno {
		case 0:
			return n, true, nil
		case unix.EAGAIN:
			return 0, false, nil
		case unix.EINTR:
		default:
			return 0, false, errno
		}
	}
}

// write gives u to the kernel, and says if it took it.
func (d *device) write(u *unit) bool {
	if u.headLen == 0 {
		return rawWrite(d.fd, u.body) == 0
	}
	d.iov[0].Base, d.iov[1].Base = &u.head[0], &u.body[0]
	d.iov[0].SetLen(u.headLen)
	d.iov[1].SetLen(len(u.body))
	_, _, errno := unix.RawSyscall(unix.SYS_WRITEV, uintptr(d.fd), uintptr(unsafe.Pointer(&d.iov)), 2)
	return errno == 0
}

// setMTU changes the MTU of a live device.
func (d *device) setMTU(mtu int) error {
	return netns.Do(d.end.Namespace, func() error {
		link, err := netlink.LinkByName(d.end.Device)
		if err != nil {
			return fmt.Errorf("set mtu of %s: %w", d.end.Device, err)
		}
		if err := netlink.LinkSetMTU(link, mtu); err != nil {
			return fmt.Errorf("set mtu of %s to %d: %w", d.end.Device, mtu, err)
		}
		return nil
	})
}

// dropped is the number of packets that the kernel dropped before we could read them.
func (d *device) dropped() uint64 {
	var dropped uint64
	_ = netns.Do(d.end.Namespace, func() error {
		link, err := netlink.LinkByName(d.end.Device)
		if err == nil && link.Attrs().Statistics != nil {
			dropped = link.Attrs().Statistics.TxDropped
		}
		return err
	})
	return dropped
}
