package netstate

import (
	"encoding/binary"
	"fmt"
	"net"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// kernelSTP is the state of a bridge whose spanning tree is the kernel's own (BR_KERNEL_STP); 2 is a program's, which
// may let ports pass sooner.
const kernelSTP = 1

// Listens says for how long a bridge passes nothing of a port that has just come to it: its spanning tree listens, and
// then learns, for the bridge's forward delay each (IEEE 802.1D-1998, 8.4). 0: it has none, or another program's.
func Listens(bridge string) (time.Duration, error) {
	device, err := net.InterfaceByName(bridge)
	if err != nil {
		return 0, fmt.Errorf("look at bridge %s: %w", bridge, err)
	}
	c, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return 0, fmt.Errorf("look at bridge %s: %w", bridge, err)
	}
	defer c.Close()
	about := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(about[4:], uint32(device.Index)) //nolint:gosec // an index fits
	replies, err := c.Execute(netlink.Message{Header: netlink.Header{Type: unix.RTM_GETLINK, Flags: netlink.Request}, Data: about})
	if err != nil {
		return 0, fmt.Errorf("look at bridge %s: %w", bridge, err)
	}
	var on uint32
	var delay time.Duration
	for _, m := range replies {
		if len(m.Data) < len(about) {
			continue
		}
		err = within(m.Data[len(about):], func(link *netlink.AttributeDecoder) {
			if link.Type() != unix.IFLA_LINKINFO {
				return
			}
			link.Nested(each(func(info *netlink.AttributeDecoder) {
				if info.Type() != unix.IFLA_INFO_DATA {
					return
				}
				info.Nested(each(func(data *netlink.AttributeDecoder) {
					switch data.Type() {
					case unix.IFLA_BR_STP_STATE:
						on = data.Uint32()
					case unix.IFLA_BR_FORWARD_DELAY:
						delay = time.Duration(data.Uint32()) * time.Second / 100 // USER_HZ
					}
				}))
			}))
		})
	}
	if on != kernelSTP || err != nil {
		return 0, err
	}
	return 2 * delay, nil
}

// within reads attributes.
func within(b []byte, f func(*netlink.AttributeDecoder)) error {
	ad, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		return err
	}
	return each(f)(ad)
}

func each(f func(*netlink.AttributeDecoder)) func(*netlink.AttributeDecoder) error {
	return func(ad *netlink.AttributeDecoder) error {
		for ad.Next() {
			f(ad)
		}
		return ad.Err()
	}
}
