package tunnel

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/tun"
)

// openTUN makes the tun device of WireGuard in user space, in the calling thread's network
// namespace. It is up from when we say so until it is closed: wireguard-go's own (tun.CreateTUN)
// follows the link, where it closes the socket when that is down, and everything when the host's
// links change faster than it listens (ENOBUFS).
func openTUN(c Config) (tun.Device, error) {
	const clone = "/dev/net/tun"
	fd, err := unix.Open(clone, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: clone, Err: err}
	}
	request, err := unix.NewIfreq(c.Name)
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		unix.Close(fd) //nolint:errcheck // nothing was made
		return nil, err
	}
	d, _, err := tun.CreateUnmonitoredTUNFromFD(fd)
	if err != nil {
		unix.Close(fd) //nolint:errcheck // the device goes with it
		return nil, err
	}
	link, err := netlink.LinkByName(c.Name)
	if err == nil {
		err = netlink.LinkSetMTU(link, c.MTU)
	}
	if err != nil {
		d.Close()
		return nil, fmt.Errorf("set mtu: %w", err)
	}
	return packets{d}, nil
}

// packets is a tun device that reads on after a packet which it cannot make sense of, and whose UDP
// datagrams over IPv6 never have a checksum of 0. The kernel leaves checksums to the device, and wireguard-go
// (tun, gsoNoneChecksum) writes 0 where that is the sum: one in 65536. Over IPv4 it means
// that there is none; over IPv6 it has to be 0xffff (RFC 8200 §8.1), and is thrown away.
type packets struct{ tun.Device }

func (d packets) Read(into [][]byte, sizes []int, offset int) (int, error) {
	for {
		n, err := d.Device.Read(into, sizes, offset)
		for i := range n {
			mendZeroSum(into[i][offset:][:sizes[i]])
		}
		if n > 0 || err == nil || ofDevice(err) {
			return n, err
		}
	}
}

// ofDevice says whether an error of Read is of the device. Others are of one packet, such as one whose
// TCP header has no length that can be: wireguard-go would end the tunnel by it.
func ofDevice(err error) bool {
	var (
		path  *fs.PathError
		errno syscall.Errno
	)
	return errors.Is(err, os.ErrClosed) || errors.Is(err, io.EOF) || errors.As(err, &path) || errors.As(err, &errno)
}
