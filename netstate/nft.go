package netstate

import (
	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
)

// answers is room for what nftables answers to one transaction, bytes: it answers
// each message of a batch, all at once, and what does not fit fails the whole
// (ENOBUFS), seen after twenty moves of one guest.
const answers = 4 << 20

func openNFT() (*nftables.Conn, error) {
	return nftables.New(nftables.WithSockOptions(func(c *netlink.Conn) error { return c.SetReadBuffer(answers) }))
}
