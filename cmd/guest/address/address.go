// Package address gives the guest's NICs their addresses, and takes them away,
// without losing a packet to an address that stays.
//
// It remembers what each NIC was configured with in memory, which moves along
// with the guest. What the kernel has is asked again each time: every method can be
// repeated and ends in the same state.
package address

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"godwit/cmd/guest/precedence"
	"godwit/netstate/dump"
	"godwit/vm/guest"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A Book knows the NICs. Its zero value is ready. Methods exclude each other.
type Book struct {
	mu    sync.Mutex
	nics  map[string]nic  // by MAC
	ready map[string]made // by MAC; see Ready
	terms uint64          // for which NICs were ready

	narrow  map[string]narrow // by MAC; see widen
	lingers map[string]nic    // by MAC; see linger

	noted     map[string][]noted        // by MAC; see note
	withdrawn map[netip.Addr]bool       // see withdrawFirst
	shown     map[netip.Addr]netip.Addr // see shows
	spent     map[uint8]bool            // ids of endpoints, see untell
	receivers precedence.Threads
	waits     int // s; what crowd has made of the kernel's patience, 0: nothing
}

// nic is what Configure was told of one.
type nic struct {
	table    int
	gateways []netip.Addr
	announce []netip.Addr // what clients see instead of addrs
	addrs    []netip.Prefix
}

func (n nic) gateway(family int) netip.Addr {
	for _, g := range n.gateways {
		if g.IsValid() && familyOf(g) == family {
			return g
		}
	}
	return netip.Addr{}
}

// Configure brings a NIC up with its addresses; see guest.Configure. On an error
// some of it may be in place: calling again completes it.
func (b *Book) Configure(p guest.Configure) (guest.Configured, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	link, ready, err := b.readied(p)
	if err != nil {
		return guest.Configured{}, err
	}
	mac, name := link.Attrs().HardwareAddr.String(), link.Attrs().Name
	if err := b.stillAlone(link, ready); err != nil { // before peers are told, who would come to nothing
		return guest.Configured{}, fmt.Errorf("configure %s: %w", name, err)
	}
	if p.Table < 1 || len(p.Addrs) == 0 {
		return guest.Configured{}, fmt.Errorf("configure %s: needs a table above 0 and an address", name)
	}
	n := nic{table: p.Table, gateways: []netip.Addr{p.GatewayV4, p.GatewayV6}, addrs: p.Addrs, announce: p.Announce}
	strange := b.strange(mac) && !ready.whole && !p.Main
	_, again := b.nics[mac]
	told := b.atOnce(ready, p)
	if link.Attrs().Flags&net.FlagUp != 0 && !again && !p.Main { // before it was made ready
		if err := forgetNeighbours(link); err != nil {
			return guest.Configured{}, fmt.Errorf("configure %s: %w", name, err)
		}
	}
	if ready.whole && !there(ready) { // peers come a round trip after they are told
		ready = made{} // more may be gone
	}
	if suffices(ready, told, p) {
		err = placeLate(link, p)
	} else {
		err = b.settle(link, n, p, ready)
		told = nil // signal finds it
	}
	if err != nil {
		return guest.Configured{}, fmt.Errorf("configure %s: %w", name, err)
	}
	if b.nics == nil {
		b.nics = make(map[string]nic)
	}
	b.nics[mac] = n
	b.shows(n)
	delete(b.lingers, mac)
	if p.Main {
		if err := b.mainBy(link, n); err != nil {
			return guest.Configured{}, fmt.Errorf("configure %s: %w", name, err)
		}
	}
	announce(link, p.Addrs)
	for _, prefix := range p.Addrs {
		delete(b.withdrawn, prefix.Addr())
	}
	made := guest.Configured{Device: name}
	made.EndpointIDs, err = b.tell(name, p, told)
	if strange { // peers come first
		err = errors.Join(err, b.settleStrange(link, p.Addrs))
	}
	if err != nil {
		return made, fmt.Errorf("configure %s: %w", name, err)
	}
	return made, nil
}

// tell announces p's addresses to peers, unless they were told already by those ids, and says by which ids.
func (b *Book) tell(device string, p guest.Configure, told []uint8) ([]uint8, error) {
	if len(told) > 0 {
		return told, nil
	}
	if p.Endpoint == 0 {
		return nil, nil
	}
	b.crowd()
	return b.signal(device, announced(p.Addrs, p.Announce), p.Endpoint)
}

// readied is p's NIC, and what was made ready for p, which is forgotten, as is all that was for something else.
func (b *Book) readied(p guest.Configure) (netlink.Link, made, error) {
	if hardware, err := net.ParseMAC(p.MAC); err == nil {
		m, err := b.takeReady(hardware.String(), p)
		if m.whole {
			m.lease.Stop()
			b.narrowed(m.link, slices.DeleteFunc(slices.Clone(p.Addrs), func(a netip.Prefix) bool { return !slices.Contains(m.early, a.Addr()) }))
		}
		if m.whole || err != nil {
			return m.link, m, err
		}
	}
	link, err := linkByMAC(p.MAC)
	return link, made{}, err
}

// suffices says whether nothing is left to do for a NIC that was made ready, and whose peers were told, than to place
// its IPv6 addresses and what can wait until it is the main one (widen): so it is where all its addresses were placed
// early.
func suffices(ready made, told []uint8, p guest.Configure) bool {
	return len(told) > 0 && !p.Main && len(ready.early) == len(p.Addrs)
}

// placeLate has a NIC that takes in what comes to its IPv6 addresses have them, and answer for them.
func placeLate(link netlink.Link, p guest.Configure) error {
	for _, prefix := range p.Addrs {
		if prefix.Addr().Is4() {
			continue
		}
		if err := place(link, prefix, p.Table); err != nil {
			return fmt.Errorf("%s: %w", prefix, err)
		}
	}
	return nil
}

// settle gives a NIC that is up, or is brought up now, its addresses and their routes, and has it answer for them.
func (b *Book) settle(link netlink.Link, n nic, p guest.Configure, ready made) error {
	if !ready.whole {
		if err := raise(link, p); err != nil {
			return err
		}
	} else if err := answer(link, answersForOwn); err != nil {
		return err
	}
	for _, prefix := range p.Addrs {
		if !ready.whole {
			if err := lead(link, prefix.Addr(), p.Table, n); err != nil {
				return fmt.Errorf("%s: %w", prefix, err)
			}
		}
		if err := place(link, prefix, p.Table); err != nil {
			return fmt.Errorf("%s: %w", prefix, err)
		}
	}
	if err := b.widen(link.Attrs().HardwareAddr.String()); err != nil {
		return err
	}
	return awaitUsable(link, p.Addrs)
}

// MakeMain sends what is bound to no address out of that NIC.
func (b *Book) MakeMain(mac string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	link, err := linkByMAC(mac)
	if err != nil {
		return err
	}
	n, ok := b.nics[link.Attrs().HardwareAddr.String()]
	if !ok {
		return fmt.Errorf("make %s main: not configured", link.Attrs().Name)
	}
	if err := b.widen(link.Attrs().HardwareAddr.String()); err != nil {
		return fmt.Errorf("make %s main: %w", link.Attrs().Name, err)
	}
	return b.mainBy(link, n)
}

// raise brings the link up with settings that two NICs on one LAN need: each
// answers only for its own addresses, a changed neighbour is believed at once, and
// packets to an address that moved to the other NIC are accepted.
// IPv6 that is turned off stays so unless an address needs it.
func raise(link netlink.Link, p guest.Configure) error {
	name := link.Attrs().Name
	settings := map[string]string{
		"ipv4/conf/%s/rp_filter":            "0",
		"ipv4/conf/%s/arp_ignore":           "1",
		"ipv4/conf/%s/arp_announce":         "2",
		"ipv4/neigh/%s/locktime":            "0",
		"ipv6/conf/%s/accept_dad":           "0",
		"ipv6/conf/%s/accept_ra":            "0",
		"ipv6/conf/%s/addr_gen_mode":        "0",
		"ipv6/conf/%s/ndisc_notify":         "1",
		"ipv6/conf/%s/router_solicitations": "0",
	}
	if slices.ContainsFunc(p.Addrs, func(p netip.Prefix) bool { return p.Addr().Is6() }) {
		settings["ipv6/conf/%s/disable_ipv6"] = "0"
	}
	for key, value := range settings {
		path := filepath.Join("/proc/sys/net", fmt.Sprintf(key, name))
		if err := os.WriteFile(path, []byte(value), 0o644); err != nil && strings.HasPrefix(key, "ipv4/conf") {
			return err
		}
	}
	if p.TxQueueLen > 0 && link.Attrs().TxQLen != p.TxQueueLen {
		if err := netlink.LinkSetTxQLen(link, p.TxQueueLen); err != nil {
			return fmt.Errorf("queue of %d packets: %w", p.TxQueueLen, err)
		}
	}
	if p.MTU > 0 && link.Attrs().MTU != p.MTU {
		// Hypervisors can bound it (virtio's VIRTIO_NET_F_MTU): less is no harm.
		if err := netlink.LinkSetMTU(link, p.MTU); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("MTU of %d bytes: %w", p.MTU, err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	return nil
}

// lead sends packets from addr out of link, by n's gateway. It comes before the address:
// packets to that may be waiting, and their answers must not leave by the other NIC.
func lead(link netlink.Link, addr netip.Addr, table int, n nic) error {
	if gateway := n.gateway(familyOf(addr)); gateway.IsValid() {
		if err := defaultRoute(link, gateway, table); err != nil {
			return err
		}
	}
	return leadFrom(addr, table)
}

// place adds an address, and in table the route to its subnet.
func place(link netlink.Link, prefix netip.Prefix, table int) error {
	if err := addAddr(link, prefix); err != nil {
		return err
	}
	return subnetRoute(link, prefix, table)
}

// subnetRoute leads to the address's subnet in table.
func subnetRoute(link netlink.Link, prefix netip.Prefix, table int) error {
	if prefix.IsSingleIP() {
		return nil
	}
	if err := replaceRoute(netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(prefix.Masked()), Table: table,
		Scope: netlink.SCOPE_LINK, Src: prefix.Addr().AsSlice()}); err != nil {
		return fmt.Errorf("route to its subnet: %w", err)
	}
	return nil
}

func addAddr(link netlink.Link, prefix netip.Prefix) error {
	addr := &netlink.Addr{IPNet: ipNet(prefix)}
	if prefix.Addr().Is6() {
		addr.Flags = unix.IFA_F_NODAD
	}
	if err := netlink.AddrReplace(link, addr); err != nil {
		return fmt.Errorf("add address: %w", err)
	}
	return nil
}

// usableLimit bounds the wait for IPv6 addresses.
const usableLimit = 2 * time.Second

// awaitUsable returns when packets to the IPv6 ones of addrs are taken in: the
// kernel makes their local routes a moment after the addresses are added, also
// without duplicate address detection, and drops packets until then.
func awaitUsable(link netlink.Link, addrs []netip.Prefix) error {
	if !slices.ContainsFunc(addrs, func(p netip.Prefix) bool { return p.Addr().Is6() }) {
		return nil
	}
	for start := time.Now(); ; time.Sleep(2 * time.Millisecond) {
		missing, err := unusable(link, addrs)
		if err != nil || missing < 0 {
			return err
		}
		if time.Since(start) > usableLimit {
			return fmt.Errorf("%s is not taken into use", addrs[missing])
		}
	}
}

// unusable is which of addrs is one of IPv6 that the link does not take in by having it; -1: none.
func unusable(link netlink.Link, addrs []netip.Prefix) (int, error) {
	routes, err := routesOf(netlink.FAMILY_V6, unix.RT_TABLE_LOCAL)
	return slices.IndexFunc(addrs, func(p netip.Prefix) bool {
		return p.Addr().Is6() && !slices.ContainsFunc(routes, func(r netlink.Route) bool {
			return r.LinkIndex == link.Attrs().Index && r.Dst != nil && r.Dst.IP.Equal(p.Addr().AsSlice()) && r.Protocol != guest.RuleProtocol // see takeIn
		})
	}), err
}

// mainBy makes the NIC's gateways the default of the main table, in the place of other
// NICs'. Those out of devices of another kind, as a VPN's, stay, before ours or behind.
func (b *Book) mainBy(link netlink.Link, n nic) error {
	links, err := dump.Links()
	if err != nil {
		return fmt.Errorf("list NICs: %w", err)
	}
	isNIC := make(map[int]bool)
	for _, l := range links {
		_, configured := b.nics[l.Attrs().HardwareAddr.String()]
		isNIC[l.Attrs().Index] = configured && !liesAbove(l) || l.Type() == "device" && len(l.Attrs().HardwareAddr) == 6
	}
	for _, gateway := range n.gateways {
		if !gateway.IsValid() {
			continue
		}
		var source netip.Addr
		for _, prefix := range n.addrs {
			if familyOf(prefix.Addr()) == familyOf(gateway) {
				source = prefix.Addr()
				break
			}
		}
		if err := mainRoute(link, gateway, source, isNIC); err != nil {
			return err
		}
	}
	return nil
}
