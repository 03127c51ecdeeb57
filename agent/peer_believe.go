package agent

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"godwit/agent/config"
	"godwit/agent/talk"
	"godwit/migration"
	"godwit/netstate/tunnel"
)

// What another host asks is held against what this host knows of it by its own
// configuration: which uplinks it has, and which addresses are its guests'. A host that
// lies, or was taken over, must not lead addresses here that are not its own to give.

// believe says what of a preparation cannot be true.
func (a *Agent) believe(p talk.Preparation) error {
	if err := a.uplinkOf(p.Plan.From, p.Tunnel.Addr(), "prepare guest "+p.Plan.Guest); err != nil {
		return err
	}
	for _, t := range p.MemoryTunnels {
		if err := a.uplinkOf(p.Plan.From, t.End.Addr(), "prepare guest "+p.Plan.Guest); err != nil {
			return err
		}
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("prepare guest %s: %w", p.Plan.Guest, err)
	}
	taken := a.takenAddresses()
	for _, held := range p.Plan.Held {
		if err := a.belongs(held); err != nil {
			return err
		}
		if whose := a.book.Whose(held.Prefix.Addr(), own); whose != "" {
			return notBelieved("address %s of guest %s: it is %s here", held.Prefix.Addr(), p.Plan.Guest, whose)
		}
		if owner, ok := taken[held.Prefix.Addr()]; ok && owner != p.Plan.Guest {
			return notBelieved("address %s: guest %s of this host has it, not %s", held.Prefix.Addr(), owner, p.Plan.Guest)
		}
	}
	for _, next := range p.Plan.Next {
		if p.Plan.KeepsAddress() {
			break // they are those that it holds
		}
		if subnet := a.config.Network.SubnetOf(next.Prefix.Addr()); next.Home != a.config.Host || !subnet.Contains(next.Prefix.Addr()) {
			return notBelieved("next address %s of %s: not in the guests' subnet %s of this host", next.Prefix.Addr(), next.Home, subnet)
		}
		if whose := a.book.Whose(next.Prefix.Addr(), own); whose != "" {
			return notBelieved("next address %s of guest %s: it is %s here", next.Prefix.Addr(), p.Plan.Guest, whose)
		}
	}
	return nil
}

// believeThere says what of a destination's answer to that cannot be true: tunnels end at uplinks of its own, and memory that QEMU sends by itself goes into one
// of them, to which own are this host's ends, or, where it is not to be encrypted, to such an uplink.
func (a *Agent) believeThere(plan migration.Plan, p talk.Prepared, own []tunnel.Config) error {
	what := "prepare guest " + plan.Guest
	if err := a.uplinkOf(plan.To, p.Tunnel.Addr(), what); err != nil {
		return err
	}
	var ends []netip.Addr
	for k, t := range p.Tunnels {
		if err := a.uplinkOf(plan.To, t.End.Addr(), what); err != nil {
			return err
		}
		if k < len(own) {
			_, end := tunnel.InnerAddrs(own[k].Local, t.End)
			ends = append(ends, end)
		}
	}
	to, _ := talk.QEMUAddress(p.Memory)
	switch {
	case !plan.Direct() || !plan.Insecure && slices.Contains(ends, to.Addr()):
		return nil
	case plan.Insecure && a.uplinkOf(plan.To, to.Addr(), what) == nil:
		return nil
	}
	return notBelieved("%s: memory is to be sent to %s, which is no end of %s's", what, to, plan.To)
}

// belongs says whether an address may be of the home that it names.
func (a *Agent) belongs(addr migration.Address) error {
	ip := addr.Prefix.Addr()
	own := a.config.Network.SubnetOf(ip)
	if addr.Home == a.config.Host {
		if !own.Contains(ip) {
			return notBelieved("address %s: not in the guests' subnet %s of its home, this host", ip, own)
		}
		return nil
	}
	n, known := a.config.Find(addr.Home)
	subnet := n.V6
	if ip.Is4() {
		subnet = n.V4
	}
	switch {
	case known && subnet.IsValid() && !subnet.Contains(ip):
		return notBelieved("address %s: not in the guests' subnet %s of its home %s", ip, subnet, addr.Home)
	case own.Contains(ip) && n.Site != a.config.Site:
		return notBelieved("address %s: of the guests' subnet %s of this host, and not of %q", ip, own, addr.Home)
	}
	return nil
}

// uplinkOf says whether at is one of the addresses by which this host knows host.
func (a *Agent) uplinkOf(host string, at netip.Addr, what string) error {
	n, ok := a.config.Find(host)
	if !ok || !slices.ContainsFunc(n.Uplinks, func(u config.Uplink) bool { return u.Address == at }) {
		return notBelieved("%s: the tunnel's end %s is no uplink of host %s; mend peers[].uplinks in the configuration of host %s", what, at, host, a.config.Host)
	}
	return nil
}

func notBelieved(format string, args ...any) error {
	return &migration.Problem{Code: migration.CodePeer, Text: "not believed: " + fmt.Sprintf(format, args...)}
}
