package agent

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"godwit/agent/config"
	"godwit/agent/guests"
	"godwit/agent/handed"
	"godwit/migration"
	"godwit/vm/guest"
)

// What a guest has beside the addresses that Godwit knows of (handed), as it is adopted and before it leaves.

// activeNIC is that which has the guest's addresses. Where both have some there is none to be
// chosen: the next address needs a NIC of its own, and all others are led to one MAC.
func activeNIC(d config.Description, owned [][]netip.Prefix) (int, error) {
	var have []int
	var said []string
	for i, addrs := range owned {
		if len(addrs) > 0 {
			have = append(have, i)
			said = append(said, fmt.Sprintf("%s has %s", d.NICs[i].MAC, joined(addrs)))
		}
	}
	switch len(have) {
	case 0:
		return 0, nil
	case 1:
		return have[0], nil
	}
	return 0, refuseAdoption(d, "both of its NICs have addresses that would move (%s), and one must be spare; take the spare one's away and set it down (no DHCP client, no router's advertisements on it), or name in addresses those of the other alone",
		strings.Join(said, ", "))
}

// claim has a guest that is adopted hold addrs, each once, or says which of them is somebody else's: what is led to a guest,
// and answered for, must be its own, whatever it says of itself. Of two that come with the same at once one gets it.
func (a *Agent) claim(g *guests.Guest, addrs []migration.Address) error {
	d := g.Held().Description
	addrs = once(addrs)
	if n := len(addrs); n > migration.MostAddresses {
		return refuseAdoption(d, "it has %d addresses of this site's subnet, and no more than %d move with a guest; name those in addresses", n, migration.MostAddresses)
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return refuseAdoption(d, "list this host's addresses: %v", err)
	}
	return a.book.Claim(d.Name, func(others map[netip.Addr]string) error {
		for _, held := range addrs {
			addr := held.Prefix.Addr()
			whose := a.book.Whose(addr, own)
			owner, has := others[addr]
			switch {
			case addr == held.Gateway:
				whose = "the router"
			case has && owner != d.Name:
				whose = "guest " + owner + "'s"
			}
			if whose != "" {
				return refuseAdoption(d, "its address %s is %s here; take it from the guest, or name in addresses those that are its own", addr, whose)
			}
		}
		a.guests.GiveAddresses(g, addrs)
		return nil
	})
}

// once are addrs without what comes again, as where a NIC has one with two prefixes.
func once(addrs []migration.Address) (out []migration.Address) {
	seen := map[netip.Addr]bool{}
	for _, addr := range addrs {
		if !seen[addr.Prefix.Addr()] {
			out = append(out, addr)
		}
		seen[addr.Prefix.Addr()] = true
	}
	return out
}

func joined(addrs []netip.Prefix) string {
	var words []string
	for _, p := range addrs {
		words = append(words, p.Addr().String())
	}
	return strings.Join(words, " and ")
}

// mostUntold bounds how many addresses a note names: a guest may have any number.
const mostUntold = 8

// noteUntold says which addresses of this site's subnet the guest has and Godwit was not told of:
// nothing leads to them once it has left. What it has of other subnets nobody reaches here either.
func (m *outgoing) noteUntold(info guest.Info) {
	if m.plan.KeepsAddress() && m.plan.FromSite == m.plan.ToSite {
		return // its NIC stays on the same LAN, with all that it has
	}
	temporary := func(p netip.Prefix) bool {
		return slices.ContainsFunc(info.NICs, func(nic guest.NIC) bool { return slices.Contains(nic.Temporary, p.Addr()) })
	}
	untold := handed.Untold(m.a.config.Network, m.guest.Held(), info)
	lasting := slices.DeleteFunc(slices.Clone(untold), temporary)
	untold = slices.DeleteFunc(untold, func(p netip.Prefix) bool { return !temporary(p) })
	if len(lasting) > 0 {
		m.rec.Note(fmt.Sprintf("the guest also has %s of the subnet here, of which Godwit was not told: what it was not told of does not move, and stops answering at the switch; name all in the description's addresses (`godwit guest forget %s`, then adopt it again), or take it from the guest",
			someOf(lasting), m.plan.Guest))
	}
	if len(untold) > 0 {
		m.rec.Note(fmt.Sprintf("the guest also has %s here, by which it begins connections for some hours (RFC 8981): temporary addresses do not move, and what is open by them is lost at the switch; set net.ipv6.conf.NIC.use_tempaddr to 1 or 0 in the guest, and it begins them by one that does",
			someOf(untold)))
	}
}

// someOf are addresses for a note, which names no more than mostUntold.
func someOf(addrs []netip.Prefix) string {
	n := len(addrs) - mostUntold
	if n <= 0 {
		return joined(addrs)
	}
	return fmt.Sprintf("%s and %d more", joined(addrs[:mostUntold]), n)
}
