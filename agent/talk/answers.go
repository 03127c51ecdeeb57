package talk

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"godwit/agent/config"
	"godwit/agent/peer"
	"godwit/agent/probe"
	"godwit/migration"
	"godwit/netstate/tunnel"
)

// Answers of another host are used as they are once they were checked here: in lists,
// names of devices, and in what is handed to QEMU.

// Check says what of an acceptance cannot be meant.
func (a Acceptance) Check(plan migration.Plan, there config.Neighbour) error {
	wrong := answersWrong("check")
	switch {
	case len(a.Next) > migration.MostAddresses:
		return wrong("%d next addresses", len(a.Next))
	case len(a.Next) == 0 && !plan.KeepsAddress():
		return wrong("no next address")
	case len(a.Token) != probe.TokenLength:
		return wrong("a token of %d bytes", len(a.Token))
	case len(a.Ends) > migration.MostAddresses:
		return wrong("%d ends for tunnels", len(a.Ends))
	}
	if err := checkAddresses(a.Next); err != nil {
		return wrong("%v", err)
	}
	if plan.KeepsAddress() {
		if !slices.EqualFunc(migration.Bare(a.Next), migration.Bare(plan.Held), func(x, y netip.Addr) bool { return x == y }) {
			return wrong("the guest keeps its addresses, and it names others, or none")
		}
		return nil
	}
	for _, addr := range a.Next {
		ip, subnet := addr.Prefix.Addr(), there.V6
		if ip.Is4() {
			subnet = there.V4
		}
		if addr.Home != plan.To || subnet.IsValid() && !subnet.Contains(ip) {
			return wrong("next address %s of %.100q is not of %s's guests' subnet %s", ip, addr.Home, plan.To, subnet)
		}
	}
	return nil
}

// Check says what of a destination's preparation cannot be meant.
func (p Prepared) Check(plan migration.Plan) error {
	wrong := answersWrong("prepare")
	if _, err := tunnel.ParseKey(p.TunnelKey); err != nil {
		return wrong("the destination's tunnel key is not one")
	}
	_, toQEMU := QEMUAddress(p.Memory)
	switch {
	case !p.Tunnel.IsValid():
		return wrong("the tunnel's end there is no address")
	case len(p.Tunnels) > migration.MostAddresses:
		return wrong("%d tunnels for memory", len(p.Tunnels))
	case len(p.Home) > migration.MostAddresses:
		return wrong("%d addresses at home", len(p.Home))
	case plan.Direct() && !toQEMU:
		return wrong("memory is not to be sent to %.40q", p.Memory)
	case plan.Multipath() && !isPort(p.Memory):
		return wrong("the port for memory is not one; bring both hosts to the same release")
	}
	return nil
}

// LikeTunnels is a port of one of the destination's ends for tunnels that answers probes as those do; 0: there is none.
func (a Acceptance) LikeTunnels(end netip.Addr) uint16 {
	for _, e := range a.Ends {
		if e.Addr() == end {
			return e.Port()
		}
	}
	return a.Probe
}

// MayEnd are those of the pairs of uplinks that carry guests at whose other side the destination may have its end of a
// tunnel, that of its preferred one first. One of an earlier release does not say: it has it at its first.
func (a Acceptance) MayEnd(pairs []peer.Path) []peer.Path {
	var out []peer.Path
	for _, end := range a.Ends {
		for _, p := range pairs {
			if p.Remote == end.Addr() {
				out = append(out, p)
			}
		}
	}
	if len(out) > 0 {
		return out
	}
	return slices.DeleteFunc(slices.Clone(pairs), func(p peer.Path) bool { return p.Remote != pairs[0].Remote })
}

func answersWrong(what string) func(string, ...any) error {
	return func(format string, a ...any) error {
		return &migration.Problem{Code: migration.CodePeer, Text: what + ": the destination's answer is not one: " + fmt.Sprintf(format, a...)}
	}
}

// QEMUAddress is where QEMU is told to send memory by itself: an address and a port, and none of the
// other things that it takes, such as commands; false: it is none.
func QEMUAddress(uri string) (at netip.AddrPort, ok bool) {
	text, ok := strings.CutPrefix(uri, "tcp:")
	at, err := netip.ParseAddrPort(strings.TrimSuffix(text, ",mptcp=on"))
	return at, ok && err == nil
}

func isPort(s string) bool {
	port, err := strconv.ParseUint(s, 10, 16)
	return err == nil && port > 0
}
