package netstate

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// A bridgeRule is one nftables rule: its comment tells what it does and is
// compared, so everything that shapes the expressions must be in it.
type bridgeRule struct {
	comment string
	exprs   []expr.Any
}

// ingress returns the rules of a guest's prerouting chain: frames that the host
// must route instead of the bridge. The first, which does nothing, marks the
// chain as made; those of active addresses stand last.
func ingress(s State, bridge net.HardwareAddr) []bridgeRule {
	rules := []bridgeRule{{comment: words("of", "guest", s.Guest)}}
	rules = append(rules, offLinkIngress(s, bridge)...)
	for _, v := range s.Visiting {
		rules = append(rules, ingressVisiting(s.Guest, v, bridge)...)
	}
	return append(rules, ingressAway(s, bridge)...)
}

// ingressVisiting are those of one address with which the guest visits, or that it has at home again.
func ingressVisiting(guest string, v Visiting, bridge net.HardwareAddr) (rules []bridgeRule) {
	if !v.AtHome() {
		rules = append(rules, clampRule(v.Addr, v.Fits, "out")...)
		rules = append(rules, flowRules(guest, v.Addr, "out", true, join(unicast(), ipSrc(v.Addr)))...)
	}
	for _, mac := range v.redirected() {
		if v.AtHome() && v.Addr.Is6() && !v.Active { // the guest asks by its other NIC before it has said that the address is there
			for _, kind := range neighbourTalk {
				rules = append(rules, bridgeRule{words("talk", "to", v.Addr.String(), "mac", mac.String(), "icmp6", strconv.Itoa(int(kind))),
					join(etherDst(mac), ipDst(v.Addr), icmp6Of(kind), accept())})
			}
		}
		rules = append(rules, bridgeRule{words("redirect", "to", v.Addr.String(), "mac", mac.String(), "host", bridge.String()),
			join(etherDst(mac), ipDst(v.Addr), toHost(bridge))})
	}
	for _, tap := range v.Taps {
		switch {
		case v.Asks && v.Renews && tap == v.Tap:
			rules = append(rules, bridgeRule{words("asks", "dhcp", v.Addr.String(), "tap", tap, "of", "all"), join(iif(tap), group(), dhcpAsked(), drop())})
		case v.Asks:
			rules = append(rules, bridgeRule{words("asks", "dhcp", v.Addr.String(), "tap", tap), join(iif(tap), dhcpAsked(), drop())})
		}
		if v.AtHome() && v.Addr.Is6() {
			for _, kind := range neighbourTalk {
				rules = append(rules, bridgeRule{words("talk", "from", v.Addr.String(), "tap", tap, "icmp6", strconv.Itoa(int(kind))),
					join(iif(tap), ipSrc(v.Addr), icmp6Of(kind), accept())})
			}
		}
		m := join(iif(tap), unicast(), ipSrc(v.Addr), count(counterVisiting(guest, v.Addr)), toHost(bridge))
		rules = append(rules, bridgeRule{words("redirect", "from", v.Addr.String(), "tap", tap, "host", bridge.String()), m})
		if !v.Gateway.IsValid() || v.AtHome() {
			continue
		}
		rules = append(rules, bridgeRule{words("asks", "router", v.Gateway.String(), "tap", tap, "host", bridge.String()),
			join(iif(tap), asksFor(v.Gateway), toHost(bridge))})
	}
	return rules
}

// redirected are the MACs to which neighbours here may send what the host has to route: at home that of another NIC, or
// the bridge floods it, and no NIC that is up takes it; of a guest that is leaving all.
func (v Visiting) redirected() (macs []net.HardwareAddr) {
	if v.Active {
		macs = append(macs, v.MAC)
	}
	if (v.AtHome() || v.Active) && len(v.Known) != 0 && !bytes.Equal(v.Known, v.MAC) {
		macs = append(macs, v.Known)
	}
	return macs
}

// ingressAway are those of the guest's addresses that are away; active ones last.
func ingressAway(s State, bridge net.HardwareAddr) (rules []bridgeRule) {
	for _, a := range s.Away {
		rules = append(rules, clampRule(a.Addr, a.Fits, "in")...)
		rules = append(rules, clampRule(a.Addr, a.Fits, "out")...)
	}
	for _, a := range s.Away {
		if !a.Active {
			continue
		}
		rules = append(rules, knownRules(a)...)
		rules = append(rules, flowRules(s.Guest, a.Addr, "away", false, join(etherDst(a.MAC), ipDst(a.Addr)))...)
		m := join(etherDst(a.MAC), ipDst(a.Addr), count(counterAway(s.Guest, a.Addr)), toHost(bridge))
		rules = append(rules, bridgeRule{words("redirect", "away", a.Addr.String(), "mac", a.MAC.String(), "host", bridge.String()), m})
		if a.Addr.Is4() {
			m := join(etherDst(a.MAC), arpRequest(a.Addr), toHost(bridge))
			rules = append(rules, bridgeRule{words("arp", "away", a.Addr.String(), "mac", a.MAC.String(), "host", bridge.String()), m})
		}
	}
	return rules
}

// knownRules take what neighbours send to a's other MAC as sent to its MAC, which the rules that follow look for.
func knownRules(a Away) (rules []bridgeRule) {
	if len(a.Known) == 0 {
		return nil
	}
	about := []string{"addr", a.Addr.String(), "mac", a.Known.String(), "of", a.MAC.String()}
	rules = []bridgeRule{{words("known", about...), join(etherDst(a.Known), ipDst(a.Addr), setEtherDst(a.MAC))}}
	if a.Addr.Is4() {
		rules = append(rules, bridgeRule{words("known-arp", about...), join(etherDst(a.Known), arpRequest(a.Addr), setEtherDst(a.MAC))})
	}
	return rules
}

// input returns the rules of a guest's chain of frames that go up to the host: it answers for the
// guest's old router to nobody else. What the guest asks came with the bridge's MAC, see ingress. Another
// may mean its own router, which can have the same address, such as fe80::1. What the host answers for to
// everybody, own, others may ask it.
func input(s State, own []netip.Addr) []bridgeRule {
	rules := []bridgeRule{{comment: words("of", "guest", s.Guest)}}
	for _, v := range s.Visiting {
		if v.Gateway.IsValid() && !v.AtHome() && !slices.Contains(own, v.Gateway.WithZone("")) {
			rules = append(rules, bridgeRule{words("others", "router", v.Gateway.String()), join(group(), asksFor(v.Gateway), drop())})
		}
	}
	return append(rules, offLinkInput(s, own)...)
}

// egress returns the rules of a guest's postrouting chain: while an address is
// away its taps take nothing but what was on its way to it already. What is away from
// a tap that is gone closes none: the guest may be back, by others.
func egress(s State) []bridgeRule {
	rules := []bridgeRule{{comment: words("of", "guest", s.Guest)}}
	rules = append(rules, offLinkEgress(s)...)
	for _, v := range s.Visiting {
		if !v.AtHome() {
			if v.Tap != "" { // before what looks at the guest's MAC
				rules = append(rules, waitingRule(v))
			}
			rules = append(rules, clampRule(v.Addr, v.Fits, "in")...)
			rules = append(rules, flowRules(s.Guest, v.Addr, "in", false, join(etherDst(v.MAC), ipDst(v.Addr)))...)
		}
	}
	closed := map[string]bool{}
	for _, a := range s.Away {
		if !a.Active || a.Tap == "" {
			continue
		}
		for _, tap := range append([]string{a.Tap}, s.Taps...) {
			closed[tap] = true
		}
		m := join(oif(a.Tap), etherDst(a.MAC), ipDst(a.Addr), accept())
		rules = append(rules, bridgeRule{words("underway", "addr", a.Addr.String(), "mac", a.MAC.String(), "tap", a.Tap), m})
	}
	for _, tap := range sorted(closed) {
		rules = append(rules, bridgeRule{words("closed", "tap", tap),
			join(oif(tap), count(counterClosed(s.Guest)), drop())})
	}
	return rules
}

func join(parts ...[]expr.Any) []expr.Any {
	var all []expr.Any
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// toHost makes the frame the host's own: destination MAC of the bridge, packet
// type host, and no more rules of this chain.
func toHost(bridge net.HardwareAddr) []expr.Any {
	return append(setEtherDst(bridge),
		&expr.Immediate{Register: 1, Data: []byte{unix.PACKET_HOST}},
		&expr.Meta{Key: expr.MetaKeyPKTTYPE, SourceRegister: true, Register: 1},
		&expr.Verdict{Kind: expr.VerdictAccept})
}

// dhcpAsked matches what a client of DHCP asks (RFC 2131 §4.1), without IP options.
func dhcpAsked() []expr.Any { return udp(unix.ETH_P_IP, 68, 67) }

// dhcp6Asked matches the same of IPv6 (RFC 8415 §7.2).
func dhcp6Asked() []expr.Any { return udp(unix.ETH_P_IPV6, 546, 547) }

func udp(kind, from, to uint16) []expr.Any {
	ports := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, from), to)
	return join(etherType(kind), []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, equals([]byte{unix.IPPROTO_UDP}),
		load(expr.PayloadBaseTransportHeader, 0, 4), equals(ports),
	})
}

func drop() []expr.Any   { return []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}} }
func accept() []expr.Any { return []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}} }

func count(name string) []expr.Any {
	return []expr.Any{&expr.Objref{Type: unix.NFT_OBJECT_COUNTER, Name: name}}
}

func iif(name string) []expr.Any { return ifname(expr.MetaKeyIIFNAME, name) }
func oif(name string) []expr.Any { return ifname(expr.MetaKeyOIFNAME, name) }

func ifname(key expr.MetaKey, name string) []expr.Any {
	padded := make([]byte, unix.IFNAMSIZ)
	copy(padded, name)
	return []expr.Any{&expr.Meta{Key: key, Register: 1}, equals(padded)}
}

func equals(data []byte) expr.Any {
	return &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: data}
}

func load(base expr.PayloadBase, offset, length uint32) expr.Any {
	return &expr.Payload{DestRegister: 1, Base: base, Offset: offset, Len: length}
}

func etherDst(mac net.HardwareAddr) []expr.Any {
	return []expr.Any{load(expr.PayloadBaseLLHeader, 0, 6), equals(mac)}
}

// unicast matches frames whose destination has no group bit, group those where it has.
func unicast() []expr.Any { return groupBit(0) }
func group() []expr.Any   { return groupBit(1) }

func groupBit(is byte) []expr.Any {
	return []expr.Any{
		load(expr.PayloadBaseLLHeader, 0, 1),
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{1}, Xor: []byte{0}},
		equals([]byte{is}),
	}
}

func etherType(t uint16) []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyPROTOCOL, Register: 1}, equals([]byte{byte(t >> 8), byte(t)})}
}

func ipDst(a netip.Addr) []expr.Any { return ipAddr(a, 16, 24) }
func ipSrc(a netip.Addr) []expr.Any { return ipAddr(a, 12, 8) }

func ipAddr(a netip.Addr, offset4, offset6 uint32) []expr.Any {
	if a.Is4() {
		return join(etherType(unix.ETH_P_IP), []expr.Any{load(expr.PayloadBaseNetworkHeader, offset4, 4), equals(a.AsSlice())})
	}
	return join(etherType(unix.ETH_P_IPV6), []expr.Any{load(expr.PayloadBaseNetworkHeader, offset6, 16), equals(a.AsSlice())})
}

// asksFor matches the question who has an address.
func asksFor(a netip.Addr) []expr.Any {
	if a.Is4() {
		return arpRequest(a)
	}
	return neighbourSolicit(a)
}

// arpRequest matches ARP requests for target (RFC 826 as for Ethernet and IPv4).
func arpRequest(target netip.Addr) []expr.Any {
	return join(etherType(unix.ETH_P_ARP), []expr.Any{
		load(expr.PayloadBaseNetworkHeader, 6, 2), equals([]byte{0, 1}),
		load(expr.PayloadBaseNetworkHeader, 24, 4), equals(target.AsSlice()),
	})
}

// Kinds of ICMPv6 (RFC 4861 §4.3, §4.4).
const (
	neighbourAsks    = 135
	neighbourAnswers = 136
)

var neighbourTalk = []byte{neighbourAsks, neighbourAnswers} // which is not forwarded (RFC 4861 §7.1)

// neighbourSolicit matches neighbour solicitations for target (RFC 4861 §4.3),
// which have no extension headers before them (RFC 6980).
func neighbourSolicit(target netip.Addr) []expr.Any {
	return join(icmp6Of(neighbourAsks), []expr.Any{load(expr.PayloadBaseNetworkHeader, 48, 16), equals(target.AsSlice())})
}

// icmp6Of matches a kind of ICMPv6 without extension headers.
func icmp6Of(kind byte) []expr.Any {
	return join(etherType(unix.ETH_P_IPV6), []expr.Any{
		load(expr.PayloadBaseNetworkHeader, 6, 1), equals([]byte{unix.IPPROTO_ICMPV6}),
		load(expr.PayloadBaseNetworkHeader, 40, 1), equals([]byte{kind}),
	})
}
