package netstate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"godwit/netstate/dump"
)

// batchRoom is room for one transaction, bytes, and as much for what nftables answers to it: a batch is one message,
// which is refused where it does not fit (EMSGSIZE), and each of its own is answered, all at once, and what does not
// fit fails the whole (ENOBUFS). The batches of a guest with thirty addresses have more than the 208 KiB that are the
// default.
const batchRoom = 4 << 20

func openNFT() (*nftables.Conn, error) {
	return nftables.New(nftables.WithSockOptions(func(c *netlink.Conn) error {
		return errors.Join(c.SetWriteBuffer(batchRoom), c.SetReadBuffer(batchRoom))
	}))
}

// attributes reads what nftables answers: its numbers are in network order.
func attributes(b []byte) (*netlink.AttributeDecoder, error) {
	ad, err := netlink.NewAttributeDecoder(b)
	if err == nil {
		ad.ByteOrder = binary.BigEndian
	}
	return ad, err
}

// agreeing lists in a row that say the same are believed, though somebody changes nftables all the time.
const agreeing = 4

// steady calls list again where somebody changed nftables while it read (kube-proxy, a firewall): entries
// may be missing then. It looks at the generation, as the flag that says so (NLM_F_DUMP_INTR) may stand in
// the last message of a list alone, which our packages keep to themselves.
func steady[T any](list func() (T, error)) (T, error) {
	var last T
	agree := 0
	return dump.Whole(func() (T, error) {
		var none T
		before, err := Generation()
		if err != nil {
			return none, err
		}
		all, err := list()
		if err != nil {
			return none, err
		}
		after, err := Generation()
		if err != nil || after == before {
			return all, err
		}
		if !reflect.DeepEqual(all, last) {
			last, agree = all, 0
		}
		if agree++; agree < agreeing {
			err = fmt.Errorf("nftables is changed all the time: %w", dump.Interrupted)
		}
		return all, err
	})
}

// dumpNFT gives each answer to a question for all things of a kind (NFT_MSG_GET…) and family.
// What went meanwhile is not there.
func dumpNFT(kind int, family nftables.TableFamily, each func(*netlink.AttributeDecoder) error) error {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	replies, err := c.Execute(netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | kind), Flags: netlink.Request | netlink.Dump},
		Data:   []byte{byte(family), 0, 0, 0},
	})
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	for _, m := range replies {
		if len(m.Data) < 4 {
			return errors.New("short message")
		}
		ad, err := attributes(m.Data[4:])
		if err != nil {
			return err
		}
		if err := each(ad); err != nil {
			return err
		}
	}
	return err
}

// Generation is a number that changes with everything that anybody changes in nftables here.
func Generation() (uint32, error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return 0, fmt.Errorf("open netfilter socket: %w", err)
	}
	defer c.Close()
	replies, err := c.Execute(netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETGEN), Flags: netlink.Request},
		Data:   []byte{unix.NFPROTO_UNSPEC, 0, 0, 0},
	})
	if err == nil && (len(replies) != 1 || len(replies[0].Data) < 4) {
		err = errors.New("no answer of that kind")
	}
	if err != nil {
		return 0, fmt.Errorf("ask nftables for its generation: %w", err)
	}
	ad, err := attributes(replies[0].Data[4:])
	if err != nil {
		return 0, err
	}
	var id uint32
	for ad.Next() {
		if ad.Type() == unix.NFTA_GEN_ID {
			id = ad.Uint32()
		}
	}
	return id, ad.Err()
}
