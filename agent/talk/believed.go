package talk

import (
	"fmt"
	"net/netip"
	"slices"

	"godwit/agent/config"
	"godwit/migration"
	"godwit/netstate/tunnel"
)

// What another host asks is held against what this host knows of it by its own
// configuration: which uplinks it has, and which addresses are its guests'. A host that
// lies, or was taken over, must not lead addresses here that are not its own to give.

// Believe says what of a preparation cannot be true, by the configuration of the host that it comes to. taken says
// which guest there has, or comes with, an address, whose what else one is that no guest may have; "": it is nobody's.
func (p Preparation) Believe(here *config.Config, taken map[netip.Addr]string, whose func(netip.Addr) string) error {
	if err := UplinkOf(here, p.Plan.From, p.Tunnel.Addr(), "prepare guest "+p.Plan.Guest); err != nil {
		return err
	}
	for _, t := range p.MemoryTunnels {
		if err := UplinkOf(here, p.Plan.From, t.End.Addr(), "prepare guest "+p.Plan.Guest); err != nil {
			return err
		}
	}
	for _, held := range p.Plan.Held {
		if err := belongs(here, held); err != nil {
			return err
		}
		if owner := whose(held.Prefix.Addr()); owner != "" {
			return NotBelieved("address %s of guest %s: it is %s here", held.Prefix.Addr(), p.Plan.Guest, owner)
		}
		if owner, ok := taken[held.Prefix.Addr()]; ok && owner != p.Plan.Guest {
			return NotBelieved("address %s: guest %s of this host has it, not %s", held.Prefix.Addr(), owner, p.Plan.Guest)
		}
	}
	for _, next := range p.Plan.Next {
		if p.Plan.KeepsAddress() {
			break // they are those that it holds
		}
		if subnet := here.Network.SubnetOf(next.Prefix.Addr()); next.Home != here.Host || !subnet.Contains(next.Prefix.Addr()) {
			return NotBelieved("next address %s of %s: not in the guests' subnet %s of this host", next.Prefix.Addr(), next.Home, subnet)
		}
		if owner := whose(next.Prefix.Addr()); owner != "" {
			return NotBelieved("next address %s of guest %s: it is %s here", next.Prefix.Addr(), p.Plan.Guest, owner)
		}
	}
	return nil
}

// Believe says what of a destination's answer to that cannot be true, by the configuration of its source: tunnels end
// at uplinks of that destination, and memory that QEMU sends by itself goes into one of them, to which own are the
// source's ends, or, where it is not to be encrypted, to such an uplink.
func (p Prepared) Believe(here *config.Config, plan migration.Plan, own []tunnel.Config) error {
	what := "prepare guest " + plan.Guest
	if err := UplinkOf(here, plan.To, p.Tunnel.Addr(), what); err != nil {
		return err
	}
	var ends []netip.Addr
	for k, t := range p.Tunnels {
		if err := UplinkOf(here, plan.To, t.End.Addr(), what); err != nil {
			return err
		}
		if k < len(own) {
			_, end := tunnel.InnerAddrs(own[k].Local, t.End)
			ends = append(ends, end)
		}
	}
	to, _ := QEMUAddress(p.Memory)
	switch {
	case !plan.Direct() || !plan.Insecure && slices.Contains(ends, to.Addr()):
		return nil
	case plan.Insecure && UplinkOf(here, plan.To, to.Addr(), what) == nil:
		return nil
	}
	return NotBelieved("%s: memory is to be sent to %s, which is no end of %s's", what, to, plan.To)
}

// belongs says whether an address may be of the home that it names, by the configuration of the host here.
func belongs(here *config.Config, addr migration.Address) error {
	if why := Foreign(here, addr); why != "" {
		return NotBelieved("address %s: %s", addr.Prefix.Addr(), why)
	}
	return nil
}

// Foreign is why an address cannot be of the home that it names, by the configuration of the host here; "": it may.
func Foreign(here *config.Config, addr migration.Address) string {
	ip := addr.Prefix.Addr()
	own := here.Network.SubnetOf(ip)
	if addr.Home == here.Host {
		if !own.Contains(ip) {
			return fmt.Sprintf("not in the guests' subnet %s of its home, this host", own)
		}
		return ""
	}
	n, known := here.Peer(addr.Home)
	subnet := n.SubnetOf(ip)
	switch {
	case known && subnet.IsValid() && !subnet.Contains(ip):
		return fmt.Sprintf("not in the guests' subnet %s of its home %s", subnet, addr.Home)
	case own.Contains(ip) && n.Site != here.Site:
		return fmt.Sprintf("of the guests' subnet %s of this host, and not of %q", own, addr.Home)
	}
	return ""
}

// UplinkOf refuses a tunnel's end that is none of the addresses by which the host here knows host, saying what was asked.
func UplinkOf(here *config.Config, host string, at netip.Addr, what string) error {
	n, ok := here.Peer(host)
	if !ok || !slices.ContainsFunc(n.Uplinks, func(u config.Uplink) bool { return u.Address == at }) {
		return NotBelieved("%s: the tunnel's end %s is no uplink of host %s; mend peers[].uplinks in the configuration of host %s, or,"+
			" if a NAT stands between, join the hosts by a VPN (docs/agent.md, A VPN as uplink)", what, at, host, here.Host)
	}
	return nil
}

// NotBelieved is the answer to what is asked and cannot be true.
func NotBelieved(format string, args ...any) error {
	return &migration.Problem{Code: migration.CodePeer, Text: "not believed: " + fmt.Sprintf(format, args...)}
}
