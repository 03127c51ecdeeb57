// Package dhcp gives one NIC of a guest the one address that was chosen for it: the way
// to set an address in a guest in which nobody can be asked (RFC 2131).
//
// A server stands at one tap and answers one MAC. It says nothing to anybody else, and
// has no memory: what a NIC may have is the same each time it asks.
package dhcp

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// Grant is what a NIC may have.
type Grant struct {
	MAC     net.HardwareAddr
	Addr    netip.Prefix  // IPv4, with the length of its subnet
	Gateway netip.Addr    // the subnet's router; zero: none
	Server  netip.Addr    // the server identifier: an address of this host, so that no other server believes to be meant
	MTU     int           // of the guest, bytes; 0: not said
	Time    time.Duration // of the lease, without an answer to what the guest asks from Renew on
	Renew   time.Duration // after which the guest asks this host again, as it does then for 7/8 of Time; later it asks all
}

func (g Grant) check() error {
	switch {
	case len(g.MAC) != 6:
		return errors.New("no MAC")
	case !g.Addr.IsValid() || !g.Addr.Addr().Is4() || !g.Server.Is4():
		return errors.New("no IPv4 address to give, or none of the server")
	case g.Gateway.IsValid() && !g.Gateway.Is4():
		return errors.New("the gateway is no IPv4 address")
	case g.Time < time.Second:
		return errors.New("a lease of less than a second")
	case g.Renew < time.Second || g.Renew > g.rebind():
		return errors.New("a lease that is renewed in less than a second, or not before any server is asked")
	}
	return nil
}

// rebind is after which time the guest asks all servers (RFC 2131 §4.4.5). Clients that are not told make it of Renew.
func (g Grant) rebind() time.Duration { return g.Time / 8 * 7 }

// Word is what a client has said with a message, as far as it matters here.
type Word int

// What clients say.
const (
	Nothing  Word = iota // not for us
	Asks                 // it looks for servers
	Takes                // it takes, or keeps, what it is given
	Declines             // it found somebody else with the address
	Other                // it takes another server's offer
	Strange              // it wants an address that it must not have, and is told so
)

// Answer is what to tell a client for its message; nil: nothing. It trusts nothing in
// the message but that it came from the guest.
func (g Grant) Answer(q *dhcpv4.DHCPv4) (*dhcpv4.DHCPv4, Word) {
	if q.OpCode != dhcpv4.OpcodeBootRequest || !bytes.Equal(q.ClientHWAddr, g.MAC) {
		return nil, Nothing
	}
	server := q.ServerIdentifier()
	toOther := server != nil && !server.Equal(g.Server.AsSlice())
	switch q.MessageType() {
	case dhcpv4.MessageTypeDiscover:
		return g.reply(q, dhcpv4.MessageTypeOffer), Asks
	case dhcpv4.MessageTypeRequest:
		wants := q.RequestedIPAddress() // selecting, or after a reboot
		if wants == nil || wants.IsUnspecified() {
			wants = q.ClientIPAddr // renewing
		}
		switch {
		case toOther:
			return nil, Other
		case wants.Equal(g.Addr.Addr().AsSlice()):
			return g.reply(q, dhcpv4.MessageTypeAck), Takes
		}
		return g.reply(q, dhcpv4.MessageTypeNak), Strange
	case dhcpv4.MessageTypeDecline:
		if !toOther && q.RequestedIPAddress().Equal(g.Addr.Addr().AsSlice()) { // what was given before it may decline late
			return nil, Declines
		}
	case dhcpv4.MessageTypeInform:
		return g.reply(q, dhcpv4.MessageTypeAck), Nothing
	}
	return nil, Nothing
}

// reply is a message of that type to q, with what goes with it (RFC 2131 table 3).
func (g Grant) reply(q *dhcpv4.DHCPv4, kind dhcpv4.MessageType) *dhcpv4.DHCPv4 {
	with := []dhcpv4.Modifier{
		dhcpv4.WithMessageType(kind), dhcpv4.WithOption(dhcpv4.OptServerIdentifier(g.Server.AsSlice())),
		dhcpv4.WithOptionCopied(q, dhcpv4.OptionClientIdentifier), // RFC 6842
	}
	if kind != dhcpv4.MessageTypeNak {
		with = append(with, dhcpv4.WithNetmask(net.CIDRMask(g.Addr.Bits(), 32)))
		if g.Gateway.IsValid() {
			with = append(with, dhcpv4.WithRouter(g.Gateway.AsSlice()))
		}
		if g.MTU > 0 {
			with = append(with, dhcpv4.WithGeneric(dhcpv4.OptionInterfaceMTU, []byte{byte(g.MTU >> 8), byte(g.MTU)}))
		}
		if q.MessageType() != dhcpv4.MessageTypeInform {
			with = append(with, dhcpv4.WithYourIP(g.Addr.Addr().AsSlice()), dhcpv4.WithOption(dhcpv4.OptIPAddressLeaseTime(g.Time)),
				dhcpv4.WithOption(dhcpv4.OptRenewTimeValue(g.Renew)), dhcpv4.WithOption(dhcpv4.OptRebindingTimeValue(g.rebind())))
		}
	}
	answer, err := dhcpv4.NewReplyFromRequest(q, with...)
	if err != nil {
		return nil // only where a modifier fails, and none of these does
	}
	if kind == dhcpv4.MessageTypeNak {
		answer.ClientIPAddr = net.IPv4zero
		answer.SetBroadcast()
	}
	return answer
}
