package tunnel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"godwit/netstate/netns"
)

// This file is the kernel's tunnels that are IP or GRE and nothing more (RFC 2784 and 2890,
// RFC 2003, RFC 2473): not encrypted, not authenticated, and without ports. They are used
// when asked for, by kernels that have them.

// Attributes that the netlink package has no name for (linux/if_tunnel.h).
const (
	greIgnoreDF        = 19
	fwMark             = 20 // IFLA_GRE_FWMARK and IFLA_IPTUN_FWMARK
	ip6IgnoreEncapsule = 1  // IP6_TNL_F_IGN_ENCAP_LIMIT: no option of 8 bytes in each packet
	outerTTL           = 64
)

// Overhead is what a tunnel of that kind adds to a packet, bytes; with outer IPv6 if so. Of
// wireguard, that of IPv6 for either (its paper §5.4: 32 + UDP 8 + IPv6 40).
func Overhead(kind string, outer6 bool) int {
	outer := 20
	if outer6 {
		outer = 40
	}
	switch kind {
	case VXLAN:
		return outer + 8 + 8 + 14 // UDP, VXLAN, inner Ethernet
	case GRE:
		return outer + 8 // with a key
	case IPIP:
		return outer
	}
	return 80
}

// Fragments says whether such a tunnel carries full packets over a path on which they do
// not fit, in fragments. The kernel never fragments its own tunnels over IPv6, and of IPIP
// it takes the inner DF bit outside.
func Fragments(kind string, outer6 bool) bool {
	switch kind {
	case VXLAN, GRE:
		return !outer6
	case IPIP:
		return false
	}
	return true
}

// Carries says whether such a tunnel carries packets of the family of inner.
func Carries(kind string, outer6 bool, inner netip.Addr) bool {
	return kind != IPIP || outer6 || inner.Is4()
}

// kernelKind is the kernel's name of a kind of device, and the module that has it.
func kernelKind(kind string, outer6 bool) (name, module string) {
	switch {
	case kind == GRE && outer6:
		return "ip6gre", "ip6_gre"
	case kind == GRE:
		return "gre", "ip_gre"
	case kind == IPIP && outer6:
		return "ip6tnl", "ip6_tunnel"
	case kind == IPIP:
		return "ipip", "ipip"
	}
	return kind, kind
}

// An Unsupported says that this host's kernel does not have a kind of tunnel.
type Unsupported struct{ Kind, Module string }

func (e *Unsupported) Error() string {
	return fmt.Sprintf("its kernel has no %s tunnels; load the module %s, or use %s", e.Kind, e.Module, WireGuard)
}

// Supported says by trying, with a device that is never up, whether the kernel has tunnels
// of that kind; an *Unsupported if not. WireGuard is always there, as user space can do it. It tries
// in a namespace of its own: a process that is killed meanwhile leaves nothing.
func Supported(kind string, outer6 bool) error {
	if kind != VXLAN && kind != GRE && kind != IPIP {
		return nil
	}
	ends := [2]netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:1"), netip.MustParseAddrPort("192.0.2.2:1")} // RFC 5737
	if outer6 {
		ends = [2]netip.AddrPort{netip.MustParseAddrPort("[2001:db8::1]:1"), netip.MustParseAddrPort("[2001:db8::2]:1")} // RFC 3849
	}
	c := Config{Name: "gwp-probe", Kind: kind, Local: ends[0], Remote: ends[1], MTU: 1500}
	return netns.Once(func() error { return addLink(c) })
}

// addLink makes the device of a tunnel that the kernel carries; an *Unsupported where it
// cannot.
func addLink(c Config) error {
	var err error
	if c.Kind == VXLAN {
		err = addVXLAN(c)
	} else {
		_, err = linkRequest(c).Execute(unix.NETLINK_ROUTE, 0)
	}
	if errors.Is(err, unix.EOPNOTSUPP) {
		_, module := kernelKind(c.Kind, c.Local.Addr().Is6())
		return &Unsupported{c.Kind, module}
	}
	return err
}

// linkRequest is what makes the device of a tunnel of kind GRE or IPIP.
func linkRequest(c Config) *nl.NetlinkRequest {
	name, _ := kernelKind(c.Kind, c.Local.Addr().Is6())
	r := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK)
	r.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	r.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(c.Name)))
	r.AddData(nl.NewRtAttr(unix.IFLA_MTU, nl.Uint32Attr(uint32(c.MTU)))) //nolint:gosec // at most mostMTU
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated(name))
	data := info.AddRtAttr(nl.IFLA_INFO_DATA, nil)
	if c.Kind == GRE {
		greData(data, c)
	} else {
		ipipData(data, c)
	}
	r.AddData(info)
	return r
}

// greData: the key tells the tunnels of a pair of hosts apart. Over IPv4 neither the outer
// packet nor, by the inner one's DF bit, the kernel refuses to be fragmented.
func greData(data *nl.RtAttr, c Config) {
	key := make([]byte, 4)
	binary.BigEndian.PutUint32(key, uint32(pair(c.Local, c.Remote))) //nolint:gosec // its lower half
	const hasKey = 0x20                                              // GRE_KEY is 0x2000 in network order
	data.AddRtAttr(nl.IFLA_GRE_LOCAL, c.Local.Addr().AsSlice())
	data.AddRtAttr(nl.IFLA_GRE_REMOTE, c.Remote.Addr().AsSlice())
	data.AddRtAttr(nl.IFLA_GRE_IFLAGS, []byte{hasKey, 0})
	data.AddRtAttr(nl.IFLA_GRE_OFLAGS, []byte{hasKey, 0})
	data.AddRtAttr(nl.IFLA_GRE_IKEY, key)
	data.AddRtAttr(nl.IFLA_GRE_OKEY, key)
	data.AddRtAttr(nl.IFLA_GRE_TTL, nl.Uint8Attr(outerTTL))
	if c.Local.Addr().Is6() {
		data.AddRtAttr(nl.IFLA_GRE_FLAGS, nl.Uint32Attr(ip6IgnoreEncapsule))
	} else {
		data.AddRtAttr(nl.IFLA_GRE_PMTUDISC, nl.Uint8Attr(0))
		data.AddRtAttr(greIgnoreDF, nl.Uint8Attr(1))
	}
	if c.Mark != 0 {
		data.AddRtAttr(fwMark, nl.Uint32Attr(uint32(c.Mark))) //nolint:gosec // as SO_MARK
	}
}

// ipipData: over IPv6 packets of both families go inside (protocol 0), over IPv4 of its own.
func ipipData(data *nl.RtAttr, c Config) {
	data.AddRtAttr(nl.IFLA_IPTUN_LOCAL, c.Local.Addr().AsSlice())
	data.AddRtAttr(nl.IFLA_IPTUN_REMOTE, c.Remote.Addr().AsSlice())
	data.AddRtAttr(nl.IFLA_IPTUN_TTL, nl.Uint8Attr(outerTTL))
	if c.Local.Addr().Is6() {
		data.AddRtAttr(nl.IFLA_IPTUN_PROTO, nl.Uint8Attr(0))
		data.AddRtAttr(nl.IFLA_IPTUN_FLAGS, nl.Uint32Attr(ip6IgnoreEncapsule))
	} else {
		data.AddRtAttr(nl.IFLA_IPTUN_PROTO, nl.Uint8Attr(unix.IPPROTO_IPIP))
		data.AddRtAttr(nl.IFLA_IPTUN_PMTUDISC, nl.Uint8Attr(1))
	}
	if c.Mark != 0 {
		data.AddRtAttr(fwMark, nl.Uint32Attr(uint32(c.Mark))) //nolint:gosec // as SO_MARK
	}
}

// carryPlain makes a tunnel of kind GRE or IPIP.
func carryPlain(c Config) (carrier, error) {
	if err := fits(c); err != nil {
		return nil, err
	}
	err := addLink(c)
	if errors.Is(err, unix.EEXIST) && c.Kind == IPIP {
		return nil, fmt.Errorf("add device %s: there is an ipip tunnel from %s to %s already, and it can have one only", c.Name, c.Local.Addr(), c.Remote.Addr())
	}
	if err != nil {
		return nil, fmt.Errorf("add device %s: %w", c.Name, err)
	}
	p := inKernel{c.Name}
	if err := dress(c); err != nil {
		p.close()
		return nil, fmt.Errorf("configure device %s: %w", c.Name, err)
	}
	return p, nil
}
