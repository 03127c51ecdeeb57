package topo

import (
	"hash/fnv"
	"net"
	"net/netip"
	"os"

	"godwit/netstate/netns"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// bridge makes a bridge that forwards at once: no spanning tree, no delay, every
// multicast to every port. Its hardware address is its own: one that it took from a
// port would change under its neighbours' feet when ports come and go.
func (w *work) bridge(name string, mtu int) { w.bridgeOf(netlink.Bridge{}, name, mtu) }

// bridgeOf is bridge for one that has more than a name.
func (w *work) bridgeOf(b netlink.Bridge, name string, mtu int) {
	w.try("make bridge "+name, func() error {
		b.LinkAttrs = netlink.NewLinkAttrs()
		b.Name, b.MTU, b.HardwareAddr = name, mtu, hardware(w.namespace+"/"+name)
		snoop := false
		b.MulticastSnooping = &snoop
		return w.handle.LinkAdd(&b)
	})
	w.device("set forward delay of", name, func(link netlink.Link) error {
		return netns.Do(w.namespace, func() error { return noForwardDelay(link.Attrs().Index) })
	})
	w.up(name)
}

// hardware returns a locally administered address for a device, by its full name.
func hardware(name string) net.HardwareAddr {
	sum := fnv.New32a()
	sum.Write([]byte(name))
	return sum.Sum([]byte{0x02, 'g'})
}

// noForwardDelay sets IFLA_BR_FORWARD_DELAY, which the library has no field for.
func noForwardDelay(index int) error {
	req := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_ACK)
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(index)
	req.AddData(msg)
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("bridge"))
	data := info.AddRtAttr(nl.IFLA_INFO_DATA, nil)
	data.AddRtAttr(nl.IFLA_BR_FORWARD_DELAY, nl.Uint32Attr(0))
	req.AddData(info)
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// veth makes a pair of devices: name here, peer in the node far. Both are down.
func (w *work) veth(name string, far *node, peer string, mtu int) {
	w.try("make veth "+name, func() error {
		file, err := os.Open(netns.Path(far.namespace))
		if err != nil {
			return err
		}
		defer file.Close()
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = name, mtu
		return w.handle.LinkAdd(&netlink.Veth{
			LinkAttrs: attrs, PeerName: peer, PeerMTU: uint32(mtu), PeerNamespace: netlink.NsFd(file.Fd()),
		})
	})
}

// route sends dst (the zero prefix is everything of via's family) to via, or straight
// to device if via is not valid. table 0 is main.
func (w *work) route(table int, dst netip.Prefix, via netip.Addr, device string) {
	w.device("add route "+dst.String()+" to", device, func(link netlink.Link) error {
		route := netlink.Route{LinkIndex: link.Attrs().Index, Table: table, Dst: ipNet(dst)}
		if via.IsValid() {
			route.Gw = via.AsSlice()
		} else {
			route.Scope = netlink.SCOPE_LINK
		}
		return w.handle.RouteReplace(&route)
	})
}

// rule adds a policy rule for both families, or for from's.
func (w *work) rule(rule netlink.Rule, from netip.Prefix) {
	families := []int{netlink.FAMILY_V4, netlink.FAMILY_V6}
	if from.IsValid() {
		rule.Src = ipNet(from)
		families = families[:1]
		if from.Addr().Is6() {
			families[0] = netlink.FAMILY_V6
		}
	}
	for _, family := range families {
		rule.Family = family
		w.try("add rule "+rule.String(), func() error { return w.handle.RuleAdd(&rule) })
	}
}

// localFirst makes every specific route of the main table count before the policy
// rules: only what would take the default route is left to them.
func (w *work) localFirst() {
	rule := *netlink.NewRule()
	rule.Priority, rule.Table, rule.SuppressPrefixlen = 100, unix.RT_TABLE_MAIN, 0
	w.rule(rule, netip.Prefix{})
}

// fromRule sends what comes from a subnet, and has no specific route, by a table.
func (w *work) fromRule(from netip.Prefix, table int) {
	rule := *netlink.NewRule()
	rule.Priority, rule.Table = 100+table, table
	w.rule(rule, from.Masked())
}

// deviceRule is fromRule for what came in by a device.
func (w *work) deviceRule(device string, table int) {
	rule := *netlink.NewRule()
	rule.Priority, rule.Table, rule.IifName = 100+table, table, device
	w.rule(rule, netip.Prefix{})
}

var (
	all4 = netip.MustParsePrefix("0.0.0.0/0")
	all6 = netip.MustParsePrefix("::/0")
)

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
