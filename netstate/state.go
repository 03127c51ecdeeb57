package netstate

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// Protocol marks our routes, rules and neighbour entries (rtm_protocol,
// FRA_PROTOCOL, NDA_PROTOCOL). `ip route show proto 0x67` lists them.
const Protocol = 0x67

// Priorities of our policy rules: after local (0), and before those by which hosts lead whole networks, such as
// their VPNs' (Tailscale's begin at 5210) or for several uplinks. What goes to an address that has
// its way in main takes that before any guest's way by source, or packets between two guests of one home,
// both with such rules, would go round in circles. Each kind of rule has a number of its own: told to delete
// a rule that names no device, the kernel may take one that does.
const (
	PriorityHere     = 42 // to ADDR: main. Not where it visits: guests here then talk to it as its clients do; but from ADDR, out of the device by which it leaves: by the bridge, see leaves
	PriorityArriving = 43 // to ADDR, out of the tunnel: main, or while it waits to its tap; in by the bridge while it leaves: after it
	PriorityVisiting = 44 // from ADDR: into the tunnel, or at home to its gateway. From another tunnel, too: what is under way when the guest comes back
	PriorityReturn   = 45 // from ADDR, back from the tunnel: to the home gateway
	PriorityHears    = 46 // from link-local addresses to a home's IPv6 subnet: by the bridge, see hears
)

// Away is an address whose home is here while the guest is elsewhere, or soon
// will be.
type Away struct {
	Addr    netip.Addr
	MAC     net.HardwareAddr // of the NIC that has Addr, or had it last
	Known   net.HardwareAddr // another one of the guest that neighbours may have for Addr; nil: none
	Tap     string           // the tap of MAC's NIC; "" when it is gone
	Tunnel  string           // device towards the guest
	Gateway netip.Addr       // the subnet's router: packets that come from Addr out of the tunnel leave by it over the bridge; zero: the host's own routes decide, and the bridge needs rp_filter 0
	Subnet  netip.Prefix     // with Gateway: what has its way over the bridge without it, as from the guest itself; zero: nothing
	Home    string           // of an address in transit: device towards its home, where packets that come from Addr go; then Gateway is zero
	Fits    int              // largest packet that the tunnel carries in one piece: connections that begin now are told so; 0: as they like
	Active  bool             // false: prepared, nothing changes for anybody; true: flipped
}

// Visiting is an address of another site on a guest that lives here.
type Visiting struct {
	Addr    netip.Addr
	MAC     net.HardwareAddr // of the NIC that has Addr now
	Tap     string           // that NIC's tap, for a static forwarding entry; "": none
	Taps    []string         // all the guest's taps here
	Gateway netip.Addr       // the old subnet's router, whose MAC the guest still knows; zero: not answered for
	Tunnel  string           // device towards the address's home; "": it is at home here, see AtHome
	Fits    int              // as of Away
	Publish int              // routing table in which a speaker of BGP finds the address; 0: none. The host must forward
	Direct  bool             // its packets leave by the host's own routes instead of Tunnel: with Publish, or as the host is its router itself
	Known   net.HardwareAddr // at home, or with Leaves: another MAC that neighbours may have for Addr, whose frames go to MAC; nil: none
	Leaves  string           // device towards Addr's home on this link, by which what neighbours here send goes after the guest, once it is flipped; "": it stays
	Active  bool             // with Leaves: flipped; see Away.Active
	Waits   bool             // not at home: its guest still runs elsewhere, and what comes out of Tunnel alone is led to Tap; see waits
	Asks    bool             // what the guest asks of DHCP servers is answered at its taps, and goes no further; but
	Renews  bool             // what it asks at Tap of one server, which gave it Addr, goes there by Tunnel
}

// AtHome says that the address belongs to this site, and that the guest, which has
// come back, may still know another host's MAC for its router: packets from it
// leave by the site's router, Gateway, which answers for itself.
func (v Visiting) AtHome() bool { return v.Tunnel == "" }

// State is everything wanted for one guest on one host.
type State struct {
	Guest    string
	Bridge   string
	LAN      string   // port towards the site's router; a note only
	Taps     []string // all the guest's taps, closed while an Away from one that is there is active
	Away     []Away
	Visiting []Visiting
	OffLink  []OffLink // its NICs that came here from another link
}

// Empty says that the state asks for nothing. OffLink alone is nothing: it goes with the addresses that came by it.
func (s State) Empty() bool { return len(s.Away) == 0 && len(s.Visiting) == 0 }

// maxGuest bounds a guest's name, so that chain and counter names fit.
const maxGuest = 64

// validate says what makes the state unusable.
func (s State) validate() error {
	if s.Guest == "" || len(s.Guest) > maxGuest || strings.ContainsAny(s.Guest, " \t\n\x00/") {
		return fmt.Errorf("guest name %q: must have 1 to %d characters and no space or slash", s.Guest, maxGuest)
	}
	if err := device("bridge", s.Bridge); err != nil {
		return err
	}
	for _, tap := range s.allTaps() {
		if err := device("tap", tap); err != nil {
			return err
		}
	}
	seen := map[netip.Addr]bool{}
	for _, a := range s.Away {
		if err := a.validate(seen); err != nil {
			return err
		}
	}
	for _, v := range s.Visiting {
		if err := v.validate(seen); err != nil {
			return err
		}
	}
	for _, o := range s.OffLink {
		if err := o.validate(); err != nil {
			return err
		}
	}
	return nil
}

// validate adds the address to those that were seen.
func (a Away) validate(seen map[netip.Addr]bool) error {
	if err := errors.Join(address(seen, a.Addr, a.MAC, a.Gateway), device("tunnel", a.Tunnel)); err != nil {
		return err
	}
	if a.Subnet.IsValid() && !a.Subnet.Contains(a.Addr) {
		return fmt.Errorf("address %s: not of its subnet %s", a.Addr, a.Subnet)
	}
	if a.Home != "" && (a.Gateway.IsValid() || device("tunnel", a.Home) != nil) {
		return fmt.Errorf("address %s: in transit, with gateway %s and way home %q: want no gateway and a device", a.Addr, a.Gateway, a.Home)
	}
	return nil
}

// validate adds the address to those that were seen.
func (v Visiting) validate(seen map[netip.Addr]bool) error {
	if err := address(seen, v.Addr, v.MAC, v.Gateway); err != nil {
		return err
	}
	if v.AtHome() && !v.Gateway.IsValid() {
		return fmt.Errorf("address %s: at home, but no gateway is named", v.Addr)
	}
	if !v.AtHome() {
		if err := device("tunnel", v.Tunnel); err != nil {
			return err
		}
	}
	if (v.Leaves != "" || v.Active) && (v.AtHome() || v.Waits || device("tunnel", v.Leaves) != nil) {
		return fmt.Errorf("visiting %s: leaves by %q: want a device, and a visitor that has come", v.Addr, v.Leaves)
	}
	if v.Publish < 0 || v.Direct && v.AtHome() {
		return fmt.Errorf("visiting %s: published in table %d, direct %v: want a table, or none, and a visitor", v.Addr, v.Publish, v.Direct)
	}
	if len(v.Taps) == 0 {
		return fmt.Errorf("visiting %s: no tap", v.Addr)
	}
	if v.Waits && (v.AtHome() || v.Tap == "" || v.Publish != 0) {
		return fmt.Errorf("visiting %s: waits at tap %q, published in table %d: want a visitor, its NIC's tap and no table", v.Addr, v.Tap, v.Publish)
	}
	return nil
}

// addresses are those of the guest that it is about.
func (s State) addresses() []netip.Addr {
	var all []netip.Addr
	for _, a := range s.Away {
		all = append(all, a.Addr)
	}
	for _, v := range s.Visiting {
		all = append(all, v.Addr)
	}
	return all
}

// allTaps are all that the state names.
func (s State) allTaps() []string {
	all := slices.Clone(s.Taps)
	for _, a := range s.Away {
		all = append(all, a.Tap)
	}
	for _, v := range s.Visiting {
		all = append(append(all, v.Tap), v.Taps...)
	}
	return slices.DeleteFunc(all, func(tap string) bool { return tap == "" })
}

// address refuses one that cannot be used, or that was seen before, and adds it to those.
func address(seen map[netip.Addr]bool, addr netip.Addr, mac net.HardwareAddr, gateway netip.Addr) error {
	switch {
	case !addr.IsValid() || addr.Is4In6() || addr.Zone() != "":
		return fmt.Errorf("address %q: not usable", addr)
	case seen[addr]:
		return fmt.Errorf("address %s: named twice", addr)
	case len(mac) != 6:
		return fmt.Errorf("address %s: MAC %q has not 6 bytes", addr, mac)
	case gateway.IsValid() && gateway.Is4() != addr.Is4():
		return fmt.Errorf("address %s: gateway %s is of another family", addr, gateway)
	case gateway.Zone() != "" && device("zone", gateway.Zone()) != nil: // which may be any text, and a note would hold it for others of its words
		return fmt.Errorf("address %s: gateway %q: its zone is no device", addr, gateway)
	}
	seen[addr] = true
	return nil
}

// device checks a device name as the kernel does (dev_valid_name), and that a note can hold it.
func device(what, name string) error {
	if name == "" || len(name) > 15 || strings.ContainsAny(name, " \t\n/:,=\"") {
		return fmt.Errorf("%s %q: not a device name", what, name)
	}
	return nil
}

// sameButActive says that two states differ in nothing but which addresses are
// active: going from one to the other is a flip.
func sameButActive(a, b State) bool {
	if len(a.Away) != len(b.Away) || len(a.Visiting) != len(b.Visiting) {
		return false
	}
	flipped := false
	a.Away, a.Visiting = slices.Clone(a.Away), slices.Clone(a.Visiting)
	for i := range a.Away {
		flipped = flipped || a.Away[i].Active != b.Away[i].Active
		a.Away[i].Active = b.Away[i].Active
	}
	for i := range a.Visiting {
		flipped = flipped || a.Visiting[i].Active != b.Visiting[i].Active
		a.Visiting[i].Active = b.Visiting[i].Active
	}
	return flipped && slices.Equal(notes(a, nil), notes(b, nil))
}
