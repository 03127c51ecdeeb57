package topo

import (
	"fmt"
	"net/netip"
	"regexp"
)

// Bounds that the address plan sets.
const (
	maxSites         = 64 // 100.64.0.0/10 has room for 64 second octets
	maxUplinks       = 16
	maxHosts         = 50
	maxClients       = 60
	maxClientUplinks = 4
)

var (
	idForm   = regexp.MustCompile(`^[0-9a-f]{4}$`)
	nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,39}$`)
)

// nameWords say in an error what nameForm takes.
const nameWords = "letters, digits, dashes and underscores, up to 40"

// defaults fills in what the spec leaves open.
func (s Spec) defaults() Spec {
	s.Sites = append([]Site(nil), s.Sites...)
	s.Clients = append([]Client(nil), s.Clients...)
	for i := range s.Sites {
		site := &s.Sites[i]
		site.Hosts = max(site.Hosts, 1)
		site.Uplinks = append([]Uplink(nil), site.Uplinks...)
		for u := range site.Uplinks {
			if site.Uplinks[u].Carries == "" {
				site.Uplinks[u].Carries = "migration"
				if u == 0 {
					site.Uplinks[u].Carries = "both"
				}
			}
		}
	}
	for k := range s.Clients {
		client := &s.Clients[k]
		client.Uplinks = max(client.Uplinks, 1)
		if client.MPTCP == "" {
			client.MPTCP = "full"
		}
	}
	return s
}

// Check returns an error that names the first thing in s that cannot be built.
func (s Spec) Check() error {
	if !idForm.MatchString(s.ID) {
		return fmt.Errorf("check network: id %q is not four hexadecimal digits", s.ID)
	}
	if len(s.Sites) == 0 || len(s.Sites) > maxSites {
		return fmt.Errorf("check network: %d sites, can have 1 to %d", len(s.Sites), maxSites)
	}
	if len(s.Clients) > maxClients {
		return fmt.Errorf("check network: %d clients, can have up to %d", len(s.Clients), maxClients)
	}
	taken := map[string]string{Internet: "the internet"}
	var guests []netip.Prefix
	for i, site := range s.Sites {
		if err := site.check(); err != nil {
			return fmt.Errorf("check site %q: %w", site.Name, err)
		}
		for _, prefix := range []netip.Prefix{site.GuestV4, site.GuestV6} {
			for _, other := range guests {
				if prefix.IsValid() && prefix.Overlaps(other) {
					return fmt.Errorf("check site %q: guest net %s overlaps %s of another site", site.Name, prefix, other)
				}
			}
		}
		guests = append(guests, valid(site.GuestV4, site.GuestV6)...)
		for _, name := range s.hostNames(i) {
			if other, ok := taken[name]; ok {
				return fmt.Errorf("check site %q: name %q is that of %s too", site.Name, name, other)
			}
			taken[name] = "a host of site " + site.Name
		}
	}
	return s.checkClients()
}

func (s Spec) checkClients() error {
	seen := map[string]bool{}
	for _, client := range s.Clients {
		switch {
		case !nameForm.MatchString(client.Name):
			return fmt.Errorf("check client %q: a name has %s", client.Name, nameWords)
		case seen[client.Name]:
			return fmt.Errorf("check client %q: there are two of this name", client.Name)
		case s.site(client.At) < 0 && client.At != Internet:
			return fmt.Errorf("check client %q: at %q is neither a site nor %s", client.Name, client.At, Internet)
		case client.Uplinks < 1 || client.Uplinks > maxClientUplinks:
			return fmt.Errorf("check client %q: %d uplinks, can have 1 to %d", client.Name, client.Uplinks, maxClientUplinks)
		case client.AddAddrAccepted < 0 || client.AddAddrAccepted > 8:
			return fmt.Errorf("check client %q: %d accepted addresses, the kernel takes 0 to 8", client.Name, client.AddAddrAccepted)
		}
		switch client.MPTCP {
		case "full", "backup", "single", "off":
		default:
			return fmt.Errorf("check client %q: mptcp %q is none of full, backup, single, off", client.Name, client.MPTCP)
		}
		seen[client.Name] = true
	}
	return nil
}

func (s Site) check() error {
	switch {
	case !nameForm.MatchString(s.Name):
		return fmt.Errorf("a name has %s", nameWords)
	case !s.GuestV4.IsValid() && !s.GuestV6.IsValid():
		return fmt.Errorf("it has no guest net; give it an IPv4 or an IPv6 subnet")
	case s.GuestV4.IsValid() && (!s.GuestV4.Addr().Is4() || s.GuestV4.Bits() > 29):
		return fmt.Errorf("guest net %s is not an IPv4 subnet of at least 8 addresses", s.GuestV4)
	case s.GuestV6.IsValid() && (!s.GuestV6.Addr().Is6() || s.GuestV6.Bits() > 120):
		return fmt.Errorf("guest net %s is not an IPv6 subnet of at least 256 addresses", s.GuestV6)
	case s.VLAN != "" && s.VLAN != PortInVLAN && s.VLAN != BridgeFilters:
		return fmt.Errorf("vlan %q is none of %s, %s", s.VLAN, PortInVLAN, BridgeFilters)
	case s.Hosts < 1 || s.Hosts > maxHosts:
		return fmt.Errorf("%d hosts, can have 1 to %d", s.Hosts, maxHosts)
	case len(s.Uplinks) == 0 || len(s.Uplinks) > maxUplinks:
		return fmt.Errorf("%d uplinks, can have 1 to %d", len(s.Uplinks), maxUplinks)
	}
	for _, reserved := range []string{"100.64.0.0/10", "198.18.0.0/15", "127.0.0.0/8"} {
		if s.GuestV4.Overlaps(netip.MustParsePrefix(reserved)) {
			return fmt.Errorf("guest net %s overlaps %s, which the lab uses itself", s.GuestV4, reserved)
		}
	}
	seen := map[string]bool{"all": true}
	for _, uplink := range s.Uplinks {
		if uplink.Name == "" || seen[uplink.Name] {
			return fmt.Errorf("uplink name %q is empty, taken or reserved", uplink.Name)
		}
		seen[uplink.Name] = true
		switch uplink.Carries {
		case "guest", "migration", "both":
		default:
			return fmt.Errorf("uplink %s carries %q, which is none of guest, migration, both", uplink.Name, uplink.Carries)
		}
		if err := uplink.Link.Check(); err != nil {
			return fmt.Errorf("uplink %s: %w", uplink.Name, err)
		}
	}
	if s.guestUplink() < 0 {
		return fmt.Errorf("no uplink carries guest traffic")
	}
	return nil
}

func valid(prefixes ...netip.Prefix) (kept []netip.Prefix) {
	for _, p := range prefixes {
		if p.IsValid() {
			kept = append(kept, p)
		}
	}
	return kept
}
