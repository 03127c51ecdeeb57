package netstate

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/mdlayher/ndp"

	"godwit/internal/checksum"

	"golang.org/x/sys/unix"
)

// An Advertisement is what a router says of itself and its link (RFC 4861 §4.2).
type Advertisement struct {
	Router  netip.Addr `json:"router"`  // whose it is: a link-local address (§6.1.2)
	Message []byte     `json:"message"` // ICMPv6, whose checksum was looked at when it was heard
}

const (
	// MaxAdvertisements bounds what a guest is told of the routers of its own link.
	MaxAdvertisements = 4
	maxAdvertisement  = 1500 // bytes: it is not fragmented (RFC 6980 §5)
)

// Check says what makes it none: it may come from another host.
func (a Advertisement) Check() error {
	_, err := a.parse()
	return err
}

func (a Advertisement) parse() (*ndp.RouterAdvertisement, error) {
	switch {
	case !routerAddress(a.Router):
		return nil, fmt.Errorf("router advertisement of %s: not a link-local address", a.Router)
	case len(a.Message) < 2 || len(a.Message) > maxAdvertisement || a.Message[0] != routerAdvertises || a.Message[1] != 0:
		return nil, fmt.Errorf("router advertisement of %s: %d bytes, which are none", a.Router, len(a.Message))
	}
	m, err := ndp.ParseMessage(a.Message)
	if err != nil {
		return nil, fmt.Errorf("router advertisement of %s: %w", a.Router, err)
	}
	return m.(*ndp.RouterAdvertisement), nil
}

// routerAddress says whether addr may be one by which hosts know their router.
func routerAddress(addr netip.Addr) bool {
	return addr.Is6() && addr.IsLinkLocalUnicast() && addr.Zone() == ""
}

// lifetimes are those that it grants, but for what is over or for ever.
func lifetimes(ra *ndp.RouterAdvertisement) []time.Duration {
	all := []time.Duration{ra.RouterLifetime}
	for _, o := range ra.Options {
		switch o := o.(type) {
		case *ndp.PrefixInformation:
			all = append(all, o.ValidLifetime, o.PreferredLifetime)
		case *ndp.RouteInformation:
			all = append(all, o.RouteLifetime)
		case *ndp.RecursiveDNSServer:
			all = append(all, o.Lifetime)
		}
	}
	return slices.DeleteFunc(all, func(d time.Duration) bool { return d == 0 || d == ndp.Infinity })
}

// unspoken is how long a router that is none by default is remembered: each speaks at least so often
// (RFC 4861 §6.2.1, MaxRtrAdvInterval).
const unspoken = 30 * time.Minute

// Lasts is for how long its router is one, if it says nothing more.
func (a Advertisement) Lasts() time.Duration {
	ra, err := a.parse()
	if err != nil || ra.RouterLifetime == 0 {
		return unspoken
	}
	return ra.RouterLifetime
}

// advertisementOf is what a frame carries, without its VLAN. It is nothing that hosts may believe
// (RFC 4861 §6.1.2) where the error is not nil.
func advertisementOf(frame []byte) (Advertisement, error) {
	const headers = 14 + 40
	if len(frame) < headers || frame[20] != unix.IPPROTO_ICMPV6 || frame[21] != 255 {
		return Advertisement{}, errors.New("no router advertisement, or from another link")
	}
	message := frame[headers:]
	if length := int(frame[18])<<8 | int(frame[19]); length <= len(message) {
		message = message[:length] // the rest fills a frame of Ethernet
	}
	if checksum.Sum(checksum.Pseudo(frame[22:54], unix.IPPROTO_ICMPV6, len(message)), message) != 0xffff {
		return Advertisement{}, errors.New("its checksum is wrong")
	}
	a := Advertisement{Router: netip.AddrFrom16([16]byte(frame[22:38])), Message: bytes.Clone(message)}
	return a, a.Check()
}

// frame has the router say it at mac: whoever believes it sends there. But for its link-layer address it says what it
// said: there are options that package ndp reads and does not write, or writes otherwise. Where that address would make
// it longer than most bytes of IPv6 it has none: hosts ask for it then, as they did where the router itself left it out
// (§6.2.3).
func (a Advertisement) frame(mac net.HardwareAddr, most int) ([]byte, error) {
	if err := a.Check(); err != nil {
		return nil, err
	}
	const head, own = 16, 1 // bytes before its options, §4.2; the kind of its link-layer address, §4.6.1
	message := bytes.Clone(a.Message[:head])
	message[2], message[3] = 0, 0 // the checksum
	for rest := a.Message[head:]; len(rest) > 0; {
		option := rest[:8*int(rest[1])] // whole, and not empty, as Check has seen
		if rest = rest[len(option):]; option[0] != own {
			message = append(message, option...)
		}
	}
	if with := append(append(bytes.Clone(message), own, 1), mac...); header6+len(with) <= most {
		message = with
	}
	return icmp6(mac, allNodesMAC, a.Router, allNodes, message), nil
}
