package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"godwit/agent/peer"
	"godwit/netstate"
)

// longestRun leaves a guest's directory, RUN/guests/NAME-EPOCH, some of the 90 bytes that it may have.
const longestRun = 90 - len("/guests/") - len("x-1")

// checkDirs refuses directories that depend on where a program was started: the agent would
// make them in one place, and commands look for its socket in another. So is one below which no socket can be.
func (c *Config) checkDirs() error {
	for _, dir := range []struct{ name, path string }{{"state", c.State}, {"run", c.Run}} {
		if !filepath.IsAbs(dir.path) {
			return fmt.Errorf("%s %s: it must be an absolute path", dir.name, dir.path)
		}
	}
	if len(c.Run) > longestRun {
		return fmt.Errorf("run %s: %d characters; at most %d, as sockets have their paths below it", c.Run, len(c.Run), longestRun)
	}
	return nil
}

// check says what cannot be meant of the guests' network.
func (n Network) check() error {
	if !n.V4.IsValid() && !n.V6.IsValid() {
		return errors.New("network has neither v4 nor v6")
	}
	for _, device := range []struct{ key, name string }{{"bridge", n.Bridge}, {"lan", n.LAN}} {
		if !IsDevice(device.name) {
			return fmt.Errorf("network.%s %q: not the name of a device", device.key, device.name)
		}
	}
	for _, f := range []struct {
		name             string
		is4              bool
		subnet, public   netip.Prefix
		gateway          netip.Addr
		gatewayLinkLocal bool // may be meant: routers of IPv6 have such addresses
	}{
		{"4", true, n.V4, n.Public4, n.Gateway4, false},
		{"6", false, n.V6, n.Public6, n.Gateway6, true},
	} {
		if err := checkSubnet("network.v"+f.name, f.subnet, f.is4); err != nil {
			return err
		}
		if f.public.IsValid() && (!f.subnet.IsValid() || f.is4 != f.public.Addr().Is4() || f.subnet.Bits() != f.public.Bits()) {
			return fmt.Errorf("network.public%s %s: must be as large as the guests' subnet, and of its family", f.name, f.public)
		}
		switch gateway := f.gateway; {
		case !gateway.IsValid(), f.gatewayLinkLocal && gateway.Is6() && gateway.IsLinkLocalUnicast():
		case gateway.Is4() != f.is4:
			return fmt.Errorf("network.gateway%s %s: it must be an address of IPv%s", f.name, gateway, f.name)
		case f.subnet.IsValid() && !f.subnet.Contains(gateway):
			return fmt.Errorf("network.gateway%s %s: not in the guests' subnet %s, so no guest reaches it", f.name, gateway, f.subnet)
		}
	}
	return n.checkMTU()
}

// Bounds of network.mtu, bytes.
const (
	leastMTU4 = 576   // what every host takes whole, RFC 791
	leastMTU6 = 1280  // RFC 8200, section 5: with less the kernel turns IPv6 off
	mostMTU   = 65000 // with its tunnel's headers one datagram of UDP
)

func (n Network) checkMTU() error {
	least := leastMTU4
	if n.V6.IsValid() {
		least = leastMTU6
	}
	if n.MTU < least || n.MTU > mostMTU {
		return fmt.Errorf("network.mtu of %d bytes; %d to %d", n.MTU, least, mostMTU)
	}
	return nil
}

// CheckCertificate refuses another host's: whoever is called would believe it to be that host, and
// whoever calls would not believe this one.
func (c *Config) CheckCertificate(id *peer.Identity) error {
	if name := id.Host(); name != c.Host {
		return fmt.Errorf("tls.cert %s is host %q's, and this configuration is for host %s; give it the certificate of %s", c.TLS.Cert, name, c.Host, c.Host)
	}
	return nil
}

// checkSubnet refuses what names a host, or is of the other family.
func checkSubnet(name string, subnet netip.Prefix, is4 bool) error {
	switch {
	case !subnet.IsValid():
		return nil
	case subnet.Addr().Is4() != is4:
		return fmt.Errorf("%s %s: it is of the other family of addresses", name, subnet)
	case subnet != subnet.Masked():
		return fmt.Errorf("%s %s: not the start of its subnet, which is %s", name, subnet, subnet.Masked())
	}
	return nil
}

// Missing says what of the guests' network this host has not got, a line each. It is no error of
// the file: a host that boots may make its bridge after its agent has started.
func (n Network) Missing() []string {
	var out, unfit []string
	for _, device := range []struct{ key, name string }{{"network.bridge", n.Bridge}, {"network.lan", n.LAN}} {
		ifi, err := net.InterfaceByName(device.name)
		if err != nil {
			out = append(out, fmt.Sprintf("%s %s: no such device", device.key, device.name))
			continue
		}
		if ifi.Flags&net.FlagUp == 0 && device.name == n.Bridge { // the kernel leads nothing by it, also what takes a tunnel
			unfit = append(unfit, fmt.Sprintf("%s %s: it is not up; `ip link set %[2]s up`", device.key, device.name))
		}
		if ifi.MTU < n.MTU { // a bridge drops what does not fit, and tells nobody
			unfit = append(unfit, fmt.Sprintf("%s %s: its MTU of %d bytes is less than network.mtu, %d, which guests send", device.key, device.name, ifi.MTU, n.MTU))
		}
	}
	if len(out) > 0 {
		return out
	}
	out = unfit
	switch master, err := netstate.BridgeOf(n.LAN); {
	case err != nil:
		out = append(out, "network.lan: "+err.Error())
	case master == "":
		out = append(out, fmt.Sprintf("network.lan %s: it is a port of no bridge, and must be one of %s", n.LAN, n.Bridge))
	case master != n.Bridge:
		out = append(out, fmt.Sprintf("network.lan %s: it is a port of %s, and must be one of %s", n.LAN, master, n.Bridge))
	}
	if err := netstate.OfNoVRF(n.Bridge); err != nil {
		out = append(out, "network.bridge: "+err.Error())
	}
	return out
}

// Listens says, in a line, for how long the bridge keeps a guest silent that comes to it; none: it does not. That bars
// nothing: most guests are under way for longer.
func (n Network) Listens() []string {
	silent, err := netstate.Listens(n.Bridge)
	if err != nil || silent == 0 { // what is not there is told of by Missing
		return nil
	}
	return []string{fmt.Sprintf("network.bridge %s: its spanning tree (STP) keeps a guest that comes silent until %v after its tap was made; where no loop of bridges needs it, "+
		"`ip link set %[1]s type bridge stp_state 0`, and for good where the bridge is made (NetworkManager: bridge.stp no; netplan: stp: false; ifupdown: bridge_stp off)", n.Bridge, silent)}
}

// Itself says, a line each, which of the routers that are named this host is itself.
func (n Network) Itself() (out []string) {
	for _, router := range []netip.Addr{n.Gateway4, n.Gateway6} {
		if n.IsItself(router) {
			out = append(out, fmt.Sprintf("%s %s: it is this host's own address, of %s, and guests that are at home here cannot leave; have another machine, or a network namespace "+
				"with a port of %[3]s, be their router", GatewayKey(router), router, n.Bridge))
		}
	}
	return out
}

// IsItself says whether a router is this host, by an address of the bridge's: the kernel leads nothing by such a one.
// What guests at it take for their router besides, see netstate.Own.
func (n Network) IsItself(router netip.Addr) bool {
	bridge, err := net.InterfaceByName(n.Bridge)
	if err != nil || !router.IsValid() {
		return false
	}
	own, err := bridge.Addrs()
	return err == nil && slices.ContainsFunc(own, func(a net.Addr) bool {
		has, ok := a.(*net.IPNet)
		return ok && has.IP.Equal(router.AsSlice())
	})
}

// Seen is the address that clients see in addr's place; zero: addr itself.
func (n Network) Seen(addr netip.Addr) netip.Addr {
	own, public := n.V6, n.Public6
	if addr.Is4() {
		own, public = n.V4, n.Public4
	}
	if !public.IsValid() || !own.Contains(addr) {
		return netip.Addr{}
	}
	bytes, mask := addr.AsSlice(), public.Masked().Addr().AsSlice()
	for i := range bytes {
		keep := min(max(public.Bits()-8*i, 0), 8) // bits of this byte that the subnet has
		bytes[i] = mask[i] | bytes[i]&(0xff>>keep)
	}
	out, _ := netip.AddrFromSlice(bytes)
	return out
}

// GatewayOf is the router of the guests' subnet of that family; zero: none is named.
func (n Network) GatewayOf(v4 bool) netip.Addr {
	if v4 {
		return n.Gateway4
	}
	return n.Gateway6
}

// SubnetOf is the guests' subnet of addr's family, whether or not addr is in it; zero: there is none.
func (n Network) SubnetOf(addr netip.Addr) netip.Prefix {
	if addr.Is4() {
		return n.V4
	}
	return n.V6
}

// OnLink is what a guest with an address reaches here without its router: what it says, of the guests' subnet;
// zero: its subnet is another one.
func (n Network) OnLink(p netip.Prefix) netip.Prefix {
	own := n.SubnetOf(p.Addr())
	if !own.Contains(p.Addr()) {
		return netip.Prefix{}
	}
	if p.Bits() > own.Bits() {
		own = p
	}
	return own.Masked()
}

// Subnet is one of those that guests get addresses of.
type Subnet struct {
	Prefix  netip.Prefix
	Gateway netip.Addr // zero: none is named
}

// Subnets are those of this site, IPv4's first. One without a router, or with this host for one, is none of them while
// the other has one: a host whose guests have no use for IPv6 may name its subnet all the same.
func (n Network) Subnets() []Subnet {
	all := slices.DeleteFunc([]Subnet{{n.V4, n.Gateway4}, {n.V6, n.Gateway6}}, func(s Subnet) bool { return !s.Prefix.IsValid() })
	left := func(s Subnet) bool { return s.Gateway.IsValid() && !n.IsItself(s.Gateway) } // by guests, when they move on
	if slices.ContainsFunc(all, left) {
		all = slices.DeleteFunc(all, func(s Subnet) bool { return !left(s) })
	}
	return all
}

// PassesOver says that guests get no address of addr's subnet, though the site has it.
func (n Network) PassesOver(addr netip.Addr) bool {
	own := n.SubnetOf(addr)
	return own.Contains(addr) && !slices.ContainsFunc(n.Subnets(), func(s Subnet) bool { return s.Prefix == own })
}

// GatewayKey is what names the router of addresses of addr's family in a configuration.
func GatewayKey(addr netip.Addr) string {
	if addr.Is4() {
		return "network.gateway4"
	}
	return "network.gateway6"
}

// IsDevice says whether a name may be one of a network device, and of one that is written in the notes of package netstate.
func IsDevice(name string) bool {
	return name != "" && len(name) <= longestName && name != "." && name != ".." && !strings.ContainsAny(name, "/: \t\n,=\"")
}

// Routes is how the world learns the way to visiting addresses where the operator owns
// the routes: by a speaker of BGP that announces what is in a routing table of the kernel.
type Routes struct {
	Table  int  `yaml:"table"`            // of the kernel; nobody else's
	Direct bool `yaml:"direct,omitempty"` // guests' packets leave by this host's own routes, not by the tunnel
}

// The kernel's own tables end at 255; the marks of package netstate begin at 0x67000000.
const (
	firstTable = 256
	lastTable  = 0x66ffffff
)

func (r *Routes) check() error {
	if r.Table < firstTable || r.Table > lastTable {
		return fmt.Errorf("table %d; %d to %d, and nobody else's", r.Table, firstTable, lastTable)
	}
	return nil
}
