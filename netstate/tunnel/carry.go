package tunnel

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// A carrier moves the packets of one tunnel; its device exists and is up.
type carrier interface {
	ended() <-chan struct{} // closed when it moves packets no more by itself; nil where that shows in the device alone
	close()                 // the device too
}

// carryOn is carry, or, where an earlier process left the device, goes on with that.
func carryOn(c Config, left bool) (carrier, bool, error) {
	if !left {
		return carry(c)
	}
	k := inKernel{c.Name}
	if err := forward(c.Name); err != nil {
		k.close()
		return nil, true, err
	}
	return k, true, nil
}

// carry makes the device and starts moving packets. On failure nothing is left.
func carry(c Config) (carrier, bool, error) {
	switch c.Kind {
	case VXLAN:
		k, err := carryVXLAN(c)
		return k, true, err
	case GRE, IPIP:
		k, err := carryPlain(c)
		return k, true, err
	}
	k, err := carryKernel(c)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EADDRINUSE) || errors.Is(err, errOtherSource) {
		k, err := carryUser(c)
		return k, false, err
	}
	return k, true, err
}

// errOtherSource says that the kernel's WireGuard would send from another address than the
// tunnel's: it takes the one of the route, and has no setting for it. Its port is one of all
// addresses (EADDRINUSE). In user space both are as configured.
var errOtherSource = errors.New("the route there has another source address")

// leavesByLocal returns errOtherSource where the route to the other end is not by Local, or is there for packets from
// Local alone.
func leavesByLocal(c Config) error {
	routes, err := routesTo(c, nil)
	if err != nil {
		if own, oerr := routesTo(c, c.Local.Addr().AsSlice()); oerr == nil && len(own) > 0 {
			return fmt.Errorf("%s to %s: %w: there is none but by source", c.Local.Addr(), c.Remote.Addr(), errOtherSource)
		}
		return nil // no route yet: nothing leaves by it
	}
	for _, r := range routes {
		if src, ok := netip.AddrFromSlice(r.Src); ok && src.Unmap() != c.Local.Addr() {
			return fmt.Errorf("%s to %s: %w: %s", c.Local.Addr(), c.Remote.Addr(), errOtherSource, src.Unmap())
		}
	}
	return nil
}

// routesTo is the way that packets to the other end take, from an address or, nil, from none yet.
func routesTo(c Config, from net.IP) ([]netlink.Route, error) {
	return netlink.RouteGetWithOptions(c.Remote.Addr().AsSlice(), &netlink.RouteGetOptions{SrcAddr: from, Mark: uint32(c.Mark)}) //nolint:gosec // as SO_MARK
}

// inKernel is a tunnel that the kernel carries.
type inKernel struct{ name string }

func (inKernel) ended() <-chan struct{} { return nil }

func (k inKernel) close() {
	if link, err := netlink.LinkByName(k.name); err == nil {
		_ = netlink.LinkDel(link)
	}
}

func carryKernel(c Config) (carrier, error) {
	err := netlink.LinkAdd(&netlink.Wireguard{LinkAttrs: netlink.LinkAttrs{Name: c.Name, MTU: c.MTU}})
	if err != nil {
		return nil, fmt.Errorf("add device %s: %w", c.Name, err)
	}
	k := kernelWireGuard{inKernel{c.Name}}
	if err := errors.Join(k.configure(c), dress(c)); err != nil {
		k.close()
		return nil, err
	}
	return k, nil
}

type kernelWireGuard struct{ inKernel }

func (k kernelWireGuard) configure(c Config) error {
	if err := leavesByLocal(c); err != nil {
		return err
	}
	w, err := wgctrl.New()
	if err != nil {
		return fmt.Errorf("open wireguard: %w", err)
	}
	defer w.Close()
	port := int(c.Local.Port())
	all := []net.IPNet{{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}, {IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}}
	err = w.ConfigureDevice(c.Name, wgtypes.Config{
		PrivateKey: &c.PrivateKey, ListenPort: &port, FirewallMark: &c.Mark, ReplacePeers: true,
		Peers: []wgtypes.PeerConfig{{PublicKey: c.PeerKey, Endpoint: net.UDPAddrFromAddrPort(c.Remote), ReplaceAllowedIPs: true, AllowedIPs: all}},
	})
	if err != nil {
		return fmt.Errorf("configure device %s: %w", c.Name, err)
	}
	return nil
}

// inProcess is WireGuard in this process.
type inProcess struct {
	dev     *device.Device
	crossed *collisions
}

func carryUser(c Config) (carrier, error) {
	t, err := openTUN(c)
	if err != nil {
		return nil, fmt.Errorf("add device %s: %w", c.Name, err)
	}
	logger := &device.Logger{Verbosef: device.DiscardLogf, Errorf: (&sparse{say: log.Printf}).printf}
	b := &bind{local: c.Local, mark: c.Mark}
	p := inProcess{device.NewDevice(t, b, logger), &b.crossed}
	err = p.configure(c)
	if err == nil {
		err = dress(c)
	}
	if err == nil {
		err = p.dev.Up()
	}
	if err != nil {
		p.close()
		return nil, fmt.Errorf("configure device %s: %w", c.Name, err)
	}
	return p, nil
}

func (p inProcess) ended() <-chan struct{} { return p.dev.Wait() }

func (p inProcess) close() { p.dev.Close() }

// configure speaks WireGuard's cross-platform text protocol.
func (p inProcess) configure(c Config) error {
	p.crossed.watch(p.dev, c)
	return p.dev.IpcSet(fmt.Sprintf("private_key=%s\nlisten_port=%d\nreplace_peers=true\npublic_key=%s\nendpoint=%s\nallowed_ip=0.0.0.0/0\nallowed_ip=::/0\n",
		hex.EncodeToString(c.PrivateKey[:]), c.Local.Port(), hex.EncodeToString(c.PeerKey[:]), c.Remote))
}

func carryVXLAN(c Config) (carrier, error) {
	_, _, peer, peer6 := c.linkNames()
	if err := fits(c); err != nil {
		return nil, err
	}
	if err := addLink(c); err != nil {
		return nil, fmt.Errorf("add device %s: %w", c.Name, err)
	}
	v := inKernel{c.Name}
	link, err := netlink.LinkByName(c.Name)
	if err != nil {
		v.close()
		return nil, err
	}
	farEnds := []netip.Addr{c.PeerInner}
	err = os.WriteFile("/proc/sys/net/ipv6/conf/"+c.Name+"/disable_ipv6", []byte("0"), 0)
	if err == nil {
		farEnds = append(farEnds, peer6)
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) { // a host without IPv6
		err = dress(c)
	}
	for _, far := range farEnds {
		if err != nil {
			break
		}
		fam := unix.AF_INET6
		if far.Is4() {
			fam = unix.AF_INET
		}
		err = netlink.NeighSet(&netlink.Neigh{LinkIndex: link.Attrs().Index, Family: fam, State: netlink.NUD_PERMANENT, IP: far.AsSlice(), HardwareAddr: peer})
	}
	if err != nil {
		v.close()
		return nil, fmt.Errorf("configure device %s: %w", c.Name, err)
	}
	return v, nil
}

func addVXLAN(c Config) error {
	err := netlink.LinkAdd(vxlanLink(c))
	if err != nil {
		return err
	}
	if err = forgetRoutes(c.Name); err != nil {
		inKernel{c.Name}.close()
	}
	return err
}

func vxlanLink(c Config) *netlink.Vxlan {
	vni, own, _, _ := c.linkNames()
	return &netlink.Vxlan{
		LinkAttrs: netlink.LinkAttrs{Name: c.Name, MTU: c.MTU, HardwareAddr: own},
		VxlanId:   vni, SrcAddr: c.Local.Addr().AsSlice(), Group: c.Remote.Addr().AsSlice(), Port: int(c.Remote.Port()), Learning: false,
	}
}

// fits refuses what the kernel would drop, of those kinds that do not fragment.
func fits(c Config) error {
	outer6 := c.Local.Addr().Is6()
	if Fragments(c.Kind, outer6) {
		return nil
	}
	routes, err := routesTo(c, c.Local.Addr().AsSlice())
	if err != nil || len(routes) == 0 {
		return fmt.Errorf("route to %s: %w", c.Remote.Addr(), errors.Join(err, unix.ENETUNREACH))
	}
	link, err := netlink.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return err
	}
	mtu := link.Attrs().MTU
	if of := routes[0].MTU; of > 0 { // its own, or what was heard of the path
		mtu = min(mtu, of)
	}
	if mtu < c.MTU+Overhead(c.Kind, outer6) {
		return fmt.Errorf("%s to %s: inner mtu %d does not fit into %d of %s and cannot be fragmented: use wireguard", c.Kind, c.Remote.Addr(), c.MTU, mtu, link.Attrs().Name)
	}
	return nil
}

// queueLen is the device's queue in packets: 160 ms of full packets at 375 Mbit/s.
const queueLen = 5000

// dress gives the device its mark, queue and inner address, and brings it up.
func dress(c Config) error {
	link, err := netlink.LinkByName(c.Name)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetAlias(link, c.alias()); err != nil {
		return fmt.Errorf("set alias: %w", err)
	}
	if err := netlink.LinkSetTxQLen(link, queueLen); err != nil {
		return fmt.Errorf("set queue length: %w", err)
	}
	if err := address(link, c); err != nil {
		return err
	}
	if c.Kind == WireGuard {
		if err := silence(link, c.MTU); err != nil {
			return err
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	return forward(c.Name)
}

// silence keeps the kernel from sending on its own as a link comes up, where whatever is sent starts
// a handshake: reports of the groups that a router joins (RFC 3810 §6.1) and what a link-local
// address brings. What a tunnel carries first is what it is for, and two ends that come up
// together do not cross. The link joined the groups when it was made: below IPv6's least MTU the
// kernel takes IPv6 from it, and gives it back above, when it joins none without multicast.
func silence(link netlink.Link, mtu int) error {
	const ipv6Least, none = 1280, "1" // RFC 8200 §5, IN6_ADDR_GEN_MODE_NONE
	err := errors.Join(netlink.LinkSetMulticastOff(link), netlink.LinkSetMTU(link, ipv6Least-1), netlink.LinkSetMTU(link, mtu))
	if err != nil {
		return fmt.Errorf("silence %s: %w", link.Attrs().Name, err)
	}
	err = os.WriteFile("/proc/sys/net/ipv6/conf/"+link.Attrs().Name+"/addr_gen_mode", []byte(none), 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // no IPv6 here, or none below 1280
		return fmt.Errorf("set addr_gen_mode: %w", err)
	}
	return nil
}

// forward lets packets that come out of the device go on, whatever way their answers take:
// the other end may send before anybody here says what for. The settings go with the device.
func forward(name string) error {
	for _, s := range []struct{ path, value string }{{"forwarding", "1"}, {"rp_filter", "2"}} {
		path := "/proc/sys/net/ipv4/conf/" + name + "/" + s.path
		if err := os.WriteFile(path, []byte(s.value), 0); err != nil {
			return fmt.Errorf("set %s of %s: %w", s.path, name, err)
		}
	}
	return nil
}

// address gives the device its inner pair.
func address(link netlink.Link, c Config) error {
	one := func(a netip.Addr) *net.IPNet {
		return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
	}
	err := netlink.AddrAdd(link, &netlink.Addr{IPNet: one(c.Inner), Peer: one(c.PeerInner), Scope: unix.RT_SCOPE_LINK})
	if err != nil {
		return fmt.Errorf("add inner address %s: %w", c.Inner, err)
	}
	return nil
}
