package dhcp

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"godwit/internal/checksum"
)

var grant = Grant{
	MAC: net.HardwareAddr{0x52, 0x54, 0, 0, 1, 0xb}, Addr: netip.MustParsePrefix("10.2.1.10/24"), Gateway: netip.MustParseAddr("10.2.1.1"),
	Server: netip.MustParseAddr("100.65.0.11"), MTU: 1400, Time: 8 * time.Hour, Renew: time.Hour,
}

func message(t testing.TB, with ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	m, err := dhcpv4.New(append([]dhcpv4.Modifier{dhcpv4.WithHwAddr(grant.MAC)}, with...)...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestAnswers goes through what clients say (RFC 2131 §4.3), well and badly.
func TestAnswers(t *testing.T) {
	mine, other, server := net.IP{10, 2, 1, 10}, net.IP{10, 1, 1, 50}, net.IP{100, 65, 0, 11}
	kind := dhcpv4.WithMessageType
	wants := func(ip net.IP) dhcpv4.Modifier { return dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(ip)) }
	from := func(ip net.IP) dhcpv4.Modifier { return dhcpv4.WithOption(dhcpv4.OptServerIdentifier(ip)) }
	none := dhcpv4.MessageTypeNone
	for _, c := range []struct {
		name   string
		with   []dhcpv4.Modifier
		answer dhcpv4.MessageType
		word   Word
	}{
		{"looks for servers", []dhcpv4.Modifier{kind(dhcpv4.MessageTypeDiscover)}, dhcpv4.MessageTypeOffer, Asks},
		{"looks, and would like its old one", []dhcpv4.Modifier{kind(dhcpv4.MessageTypeDiscover), wants(other)}, dhcpv4.MessageTypeOffer, Asks},
		{"takes our offer", []dhcpv4.Modifier{kind(dhcpv4.MessageTypeRequest), from(server), wants(mine)}, dhcpv4.MessageTypeAck, Takes},
		{"takes another's offer", []dhcpv4.Modifier{kind(dhcpv4.MessageTypeRequest), from(other), wants(other)}, none, Other},
		{"wants its old one after a reboot", []dhcpv4.Modifier{kind(dhcpv4.MessageTypeRequest), wants(other)}, dhcpv4.MessageTypeNak, Strange},
		{"wants ours after a reboot", []dhcpv4.Modifier{kind(dhcpv4.MessageTypeRequest), wants(mine)}, dhcpv4.MessageTypeAck, Takes},
		{"renews", []dhcpv4.Modifier{kind(dhcpv4.MessageTypeRequest), dhcpv4.WithClientIP(mine)}, dhcpv4.MessageTypeAck, Takes},
		{"renews what it has not", []dhcpv4.Modifier{kind(dhcpv4.MessageTypeRequest), dhcpv4.WithClientIP(other)}, dhcpv4.MessageTypeNak, Strange},
		{"wants nothing", []dhcpv4.Modifier{kind(dhcpv4.MessageTypeRequest)}, dhcpv4.MessageTypeNak, Strange},
		{"somebody else has it", []dhcpv4.Modifier{kind(dhcpv4.MessageTypeDecline), from(server), wants(mine)}, none, Declines},
		{"declines what it was given before", []dhcpv4.Modifier{kind(dhcpv4.MessageTypeDecline), from(server), wants(net.IPv4(10, 2, 1, 99))}, none, Nothing},
		{"declines another's", []dhcpv4.Modifier{kind(dhcpv4.MessageTypeDecline), from(other)}, none, Nothing},
		{"lets go", []dhcpv4.Modifier{kind(dhcpv4.MessageTypeRelease), from(server)}, none, Nothing},
		{"only wants to know", []dhcpv4.Modifier{kind(dhcpv4.MessageTypeInform), dhcpv4.WithClientIP(other)}, dhcpv4.MessageTypeAck, Nothing},
		{"no type", nil, none, Nothing},
		{"another MAC", []dhcpv4.Modifier{kind(dhcpv4.MessageTypeDiscover), dhcpv4.WithHwAddr(net.HardwareAddr{0x52, 0x54, 0, 0, 1, 0xa})}, none, Nothing},
		{"a server's message", []dhcpv4.Modifier{kind(dhcpv4.MessageTypeDiscover), func(m *dhcpv4.DHCPv4) { m.OpCode = dhcpv4.OpcodeBootReply }}, none, Nothing},
	} {
		t.Run(c.name, func(t *testing.T) {
			answer, word := grant.Answer(message(t, c.with...))
			got := none
			if answer != nil {
				got = answer.MessageType()
			}
			if got != c.answer || word != c.word {
				t.Fatalf("answer %v, word %d; want %v, %d", got, word, c.answer, c.word)
			}
			switch got {
			case dhcpv4.MessageTypeOffer:
				whole(t, answer)
			case dhcpv4.MessageTypeAck:
				if word == Takes {
					whole(t, answer)
				} else if !answer.YourIPAddr.IsUnspecified() {
					t.Errorf("an address for one that only wants to know: %v", answer)
				}
			case dhcpv4.MessageTypeNak:
				if !answer.YourIPAddr.IsUnspecified() || !answer.IsBroadcast() {
					t.Errorf("a NAK that cannot arrive, or gives: %v", answer)
				}
			}
		})
	}
}

// whole fails unless the answer gives all of the grant.
func whole(t *testing.T, a *dhcpv4.DHCPv4) {
	t.Helper()
	ones, _ := a.SubnetMask().Size()
	mtu := a.Options.Get(dhcpv4.OptionInterfaceMTU)
	if !a.YourIPAddr.Equal(grant.Addr.Addr().AsSlice()) || ones != 24 || len(a.Router()) != 1 || !a.Router()[0].Equal(grant.Gateway.AsSlice()) ||
		!a.ServerIdentifier().Equal(grant.Server.AsSlice()) || len(mtu) != 2 || int(mtu[0])<<8|int(mtu[1]) != 1400 {
		t.Errorf("it gives not all of %+v: %v", grant, a.Summary())
	}
	if ends, renew, rebind := a.IPAddressLeaseTime(0), a.IPAddressRenewalTime(0), a.IPAddressRebindingTime(0); ends != 8*time.Hour || renew != time.Hour || rebind != 7*time.Hour {
		t.Errorf("it ends after %v, and is asked for after %v here, and after %v wherever it is", ends, renew, rebind)
	}
}

// FuzzAnswer: whatever a guest sends, the server says nothing but what it may.
func FuzzAnswer(f *testing.F) {
	for _, kind := range []dhcpv4.MessageType{dhcpv4.MessageTypeDiscover, dhcpv4.MessageTypeRequest, dhcpv4.MessageTypeInform} {
		f.Add(message(f, dhcpv4.WithMessageType(kind)).ToBytes())
	}
	s := &Server{grant: grant, own: net.HardwareAddr{2, 0, 0, 0, 0, 1}}
	f.Fuzz(func(t *testing.T, b []byte) {
		q, err := dhcpv4.FromBytes(b)
		if err != nil {
			return
		}
		answer, _ := grant.Answer(q)
		if answer == nil {
			return
		}
		if !answer.YourIPAddr.IsUnspecified() && !answer.YourIPAddr.Equal(grant.Addr.Addr().AsSlice()) {
			t.Fatalf("it gives %v", answer.YourIPAddr)
		}
		frame := s.frame(answer)
		if len(frame) < headers+240 || checksum.Of(frame[14:34]) != 0 {
			t.Fatalf("a frame of %d bytes, checksum %#x", len(frame), checksum.Of(frame[14:34]))
		}
	})
}
