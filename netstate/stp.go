package netstate

import (
	"encoding/binary"
	"net"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// kernelSTP is the state of a bridge whose spanning tree is the kernel's own (BR_KERNEL_STP); 2 is a program's, which
// may let ports pass sooner.
const kernelSTP = 1

// BR_STATE_LISTENING and _LEARNING of linux/if_bridge.h.
const (
	portListening = 1
	portLearning  = 2
)

// Listens says for how long a bridge passes nothing of a port that has just come to it: its spanning tree listens, and
// then learns, for the bridge's forward delay each (IEEE 802.1D-1998, 8.4). 0: it has none, or another program's.
func Listens(bridge string) (time.Duration, error) {
	var on uint32
	var delay time.Duration
	err := linkInfo(bridge, unix.IFLA_INFO_DATA, func(data *netlink.AttributeDecoder) {
		switch data.Type() {
		case unix.IFLA_BR_STP_STATE:
			on = data.Uint32()
		case unix.IFLA_BR_FORWARD_DELAY:
			delay = time.Duration(data.Uint32()) * time.Second / 100 // USER_HZ
		}
	})
	if on != kernelSTP || err != nil {
		return 0, wrap(err, "look at bridge %s", bridge)
	}
	return 2 * delay, nil
}

// PortListens says whether the spanning tree of its bridge keeps a port silent for now.
func PortListens(port string) (listens bool, err error) {
	err = linkInfo(port, unix.IFLA_INFO_SLAVE_DATA, func(data *netlink.AttributeDecoder) {
		if data.Type() == unix.IFLA_BRPORT_STATE {
			state := data.Uint8()
			listens = state == portListening || state == portLearning
		}
	})
	return listens, wrap(err, "look at bridge port %s", port)
}

// linkInfo reads what the kernel says of the kind of a device, or of its master's kind.
func linkInfo(name string, part uint16, f func(*netlink.AttributeDecoder)) error {
	device, err := net.InterfaceByName(name)
	if err != nil {
		return err
	}
	c, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	about := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(about[4:], uint32(device.Index)) //nolint:gosec // an index fits
	replies, err := c.Execute(netlink.Message{Header: netlink.Header{Type: unix.RTM_GETLINK, Flags: netlink.Request}, Data: about})
	if err != nil {
		return err
	}
	for _, m := range replies {
		if len(m.Data) < len(about) {
			continue
		}
		err = within(m.Data[len(about):], func(link *netlink.AttributeDecoder) {
			if link.Type() != unix.IFLA_LINKINFO {
				return
			}
			link.Nested(each(func(info *netlink.AttributeDecoder) {
				if info.Type() == part {
					info.Nested(each(f))
				}
			}))
		})
	}
	return err
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
