package addresses

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"

	"godwit/agent/config"
	"godwit/netstate"
)

// Router is one of those that guests here are told of, by the configuration.
type Router struct {
	Addr     netip.Addr
	NotAsked error  // why it was not asked for, with what names it
	Silent   string // a line: nobody answers for it, and what to look at; "": somebody does, or it was not asked for
	Sure     bool   // that this bars guests: the kernel asks for it as it was asked for here, see table "arp godwit"
}

// AskRouters asks on the bridge who has the routers of the guests' subnets, side by side and for up to some 600 ms. One
// that is this host itself is none of them (config.Network.Itself tells of it).
func AskRouters(ctx context.Context, n config.Network) []Router {
	subnets := routed(n)
	out := make([]Router, len(subnets))
	var all sync.WaitGroup
	for i, subnet := range subnets {
		all.Go(func() { out[i] = askRouter(ctx, n, subnet) })
	}
	all.Wait()
	return out
}

// routed are the subnets that have another machine for a router.
func routed(n config.Network) []config.Subnet {
	return slices.DeleteFunc(n.Subnets(), func(s config.Subnet) bool { return !s.Gateway.IsValid() || n.IsItself(s.Gateway) })
}

func askRouter(ctx context.Context, n config.Network, subnet config.Subnet) Router {
	r := Router{Addr: subnet.Gateway}
	what := config.GatewayKey(r.Addr) + " " + r.Addr.String()
	heard, err := netstate.AskRouter(ctx, n.Bridge, r.Addr)
	port, waits := ailing(n)
	switch {
	case err != nil && port != "":
		r.NotAsked = fmt.Errorf("%s: not asked for: %w; %s", what, err, port)
	case err != nil:
		r.NotAsked = fmt.Errorf("%s: not asked for: %w", what, err)
	case !heard:
		r.Silent = fmt.Sprintf("%s: nobody answers for it on %s; %s", what, n.Bridge,
			cmp.Or(port, fmt.Sprintf("is that its address, and %s in its network (cable, VLAN)?", n.LAN)))
		r.Sure = r.Addr.Is4() && !waits && !speaksIn(n.Bridge, subnet.Prefix)
	}
	return r
}

// ailing is what is wrong with the port towards a router, "": nothing that shows; waits: it will pass by itself.
func ailing(n config.Network) (what string, waits bool) {
	port, err := net.InterfaceByName(n.LAN)
	switch {
	case err != nil:
		return "", false // which config.Network.Missing tells of
	case port.Flags&net.FlagUp == 0:
		return fmt.Sprintf("%s is not up: `ip link set %[1]s up`", n.LAN), false
	case port.Flags&net.FlagRunning == 0:
		return n.LAN + " has no carrier: is it cabled, and its other end up?", false
	}
	if waits, err = netstate.PortListens(n.LAN); err == nil && waits {
		return fmt.Sprintf("%s passes nothing yet, as the spanning tree (STP) of %s listens there: ask again in half a minute", n.LAN, n.Bridge), true
	}
	return "", false
}

// speaksIn says whether a bridge has an address of a subnet: the kernel asks from that, and not as a probe does.
func speaksIn(bridge string, subnet netip.Prefix) bool {
	device, err := net.InterfaceByName(bridge)
	if err != nil {
		return false
	}
	own, err := device.Addrs()
	return err == nil && slices.ContainsFunc(own, func(a net.Addr) bool {
		p, err := netip.ParsePrefix(a.String())
		return err == nil && subnet.Contains(p.Addr())
	})
}
