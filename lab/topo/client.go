package topo

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// client is where a client is attached now.
type client struct {
	spec Client
	k    int // its number

	mu sync.Mutex // one move at a time
	at string     // "" is nowhere
	// Per uplink, as the client's own devices have them.
	addrs, addrsV6, public []netip.Addr
	numbers                map[string]int // host numbers that it was given last
	returns                bool           // it is given those again
}

// ownDevice is the client's device of uplink j; outside and inside are those of its NAT.
func ownDevice(j int) string     { return fmt.Sprintf("eth%d", j) }
func outsideDevice(j int) string { return fmt.Sprintf("out%d", j) }
func insideDevice(j int) string  { return fmt.Sprintf("in%d", j) }

// wireClient makes client k and attaches it where the spec says.
func (t *Topo) wireClient(ctx context.Context, k int) error {
	c := &client{spec: t.spec.Clients[k], k: k, numbers: make(map[string]int)}
	t.mu.Lock()
	t.clients[c.spec.Name] = c
	t.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := setLimits(t.node(c), c.spec); err != nil {
		return err
	}
	if c.spec.NAT {
		if err := t.wireNAT(c); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := t.attach(c, c.spec.At); err != nil {
		return err
	}
	return addEndpoints(t.node(c), c)
}

func (t *Topo) node(c *client) *node { return t.nodes[clientNode(c.spec.Name)] }

// outer is the node whose devices hang on the access network: the client's NAT if it
// has one, else the client itself.
func (t *Topo) outer(c *client) (n *node, device func(int) string) {
	if c.spec.NAT {
		return t.nodes[natNode(c.spec.Name)], outsideDevice
	}
	return t.node(c), ownDevice
}

// attach plugs every uplink of c in at a place, with addresses it never had there, unless it returns.
func (t *Topo) attach(c *client, at string) error {
	c.at, c.addrs, c.addrsV6, c.public = at, nil, nil, nil
	for j := range c.spec.Uplinks {
		if err := t.plug(c, at, j); err != nil {
			return fmt.Errorf("attach client %s at %s: %w", c.spec.Name, at, err)
		}
	}
	return nil
}

// plug connects uplink j of c at a place.
func (t *Topo) plug(c *client, at string, j int) error {
	near, device := t.outer(c)
	far := t.nodes[coreNode]
	i := t.spec.site(at)
	subnet := func(n int) (netip.Prefix, netip.Prefix) { return internetNet(c.k, j, n) }
	key, first, home := fmt.Sprintf("internet %d %d", c.k, j), 2, at == c.spec.At
	if i >= 0 {
		far = t.nodes[routerNode(at)]
		subnet = func(n int) (netip.Prefix, netip.Prefix) { return accessNet(i, n) }
		key, first, home = fmt.Sprintf("access %d", i), 10+c.k, home && j == 0
	}
	number, err := t.number(c, j, key, first, home)
	if err != nil {
		return err
	}
	v4, v6 := subnet(number)
	gw4, gw6 := subnet(1)

	w := far.work()
	w.veth(accPort(c.k, j), near, device(j), t.spec.lanMTU())
	if i >= 0 {
		w.port(accPort(c.k, j), accessBridge)
	} else {
		w.up(accPort(c.k, j))
		w.address(accPort(c.k, j), gw4, gw6)
	}
	if w.err != nil {
		return w.err
	}
	c.public = append(c.public, v4.Addr())
	w = near.work()
	w.leg(device(j), j, v4, v6, gw4.Addr(), gw6.Addr())
	if w.err != nil || c.spec.NAT {
		if w.err == nil {
			w.err = t.plugInside(c, j)
		}
		return w.err
	}
	c.addrs, c.addrsV6 = append(c.addrs, v4.Addr()), append(c.addrsV6, v6.Addr())
	return nil
}

// leg makes a device one of a multihomed node's ways out: what has its address leaves
// by it, and everything else by leg 0.
func (w *work) leg(device string, j int, v4, v6 netip.Prefix, gw4, gw6 netip.Addr) {
	w.up(device)
	w.address(device, v4, v6)
	for _, p := range []struct {
		own     netip.Prefix
		all     netip.Prefix
		gateway netip.Addr
	}{{v4, all4, gw4}, {v6, all6, gw6}} {
		w.route(upTable(j), p.own.Masked(), netip.Addr{}, device)
		w.route(upTable(j), p.all, p.gateway, device)
		w.fromRule(netip.PrefixFrom(p.own.Addr(), p.own.Addr().BitLen()), upTable(j))
		if j == 0 {
			w.route(0, p.all, p.gateway, device)
		}
	}
}

// firstLater is the first host number that nobody has from the start: as many as can be there, each with every uplink
// that it may have, find a number.
const firstLater = 10 + maxClients

// octet gives out host numbers of an access network. The number first is for who was
// there from the start; later ones count from firstLater, each given once.
func (t *Topo) octet(key string, first int, home bool) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if start := fmt.Sprintf("%s first %d", key, first); home && t.octets[start] == 0 {
		t.octets[start] = 1
		return first, nil
	}
	next := max(t.octets[key], firstLater-1) + 1
	if next > 254 {
		return 0, fmt.Errorf("give an address of network %s: all are used up", key)
	}
	t.octets[key] = next
	return next, nil
}

// number is the octet that uplink j of c gets, or, where it returns, had.
func (t *Topo) number(c *client, j int, key string, first int, home bool) (n int, err error) {
	last := fmt.Sprintf("%d %s", j, key)
	if !c.returns {
		if n, err = t.octet(key, first, home); err != nil {
			return 0, err
		}
		c.numbers[last] = n
	}
	return c.numbers[last], nil
}

// detach unplugs every uplink of c. Its addresses and routes go with the devices.
func (t *Topo) detach(c *client) error {
	near, device := t.outer(c)
	w := near.work()
	inside := t.node(c).work()
	for j := range c.spec.Uplinks {
		w.remove(device(j))
		inside.remove(ownDevice(j))
	}
	w.forgetSources()
	inside.forgetSources()
	c.at = ""
	if w.err == nil {
		w.err = inside.err
	}
	if w.err != nil {
		return fmt.Errorf("detach client %s: %w", c.spec.Name, w.err)
	}
	return nil
}

// MoveClient unplugs a client at once and, after gap, plugs it in at another place (or
// the same) with new addresses. Its MPTCP endpoints follow as a phone's would: the new
// addresses are used, the old ones withdrawn. When ctx ends during the gap, the client
// stays unplugged.
func (t *Topo) MoveClient(ctx context.Context, name, at string, gap time.Duration) error {
	c, ok := t.clients[name]
	if !ok {
		return fmt.Errorf("move client %s: there is no such client", name)
	}
	if t.spec.site(at) < 0 && at != Internet {
		return fmt.Errorf("move client %s: %q is neither a site nor %s", name, at, Internet)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	old, oldV6 := slices.Clone(c.addrs), slices.Clone(c.addrsV6)
	if err := t.replug(ctx, c, at, gap); err != nil {
		return err
	}
	return follow(ctx, t.node(c), c, old, oldV6)
}

// ReturnClient unplugs a client at once and, after gap, plugs it in again where it was, with the addresses that it had,
// as a phone that comes back to its Wi-Fi. It is for those without MPTCP endpoints, as these would name devices that
// are gone: of one uplink, and never moved.
func (t *Topo) ReturnClient(ctx context.Context, name string, gap time.Duration) error {
	c, ok := t.clients[name]
	if !ok {
		return fmt.Errorf("return client %s: there is no such client", name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.returns = true
	defer func() { c.returns = false }()
	return t.replug(ctx, c, c.at, gap)
}

// replug unplugs a client, and plugs it in at a place after gap.
func (t *Topo) replug(ctx context.Context, c *client, at string, gap time.Duration) error {
	if err := t.detach(c); err != nil {
		return err
	}
	timer := time.NewTimer(gap)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return fmt.Errorf("move client %s to %s: %w", c.spec.Name, at, ctx.Err())
	}
	if err := t.attach(c, at); err != nil {
		return err
	}
	place := coreNode
	if at != Internet {
		place = routerNode(at)
	}
	near, _ := t.outer(c)
	if err := settleAll(ctx, t.nodes[place], near, t.node(c)); err != nil {
		return fmt.Errorf("move client %s to %s: %w", c.spec.Name, at, err)
	}
	return nil
}

// Client returns where a client is now; of one that does not exist, the zero value.
func (t *Topo) Client(name string) ClientNet {
	c, ok := t.clients[name]
	if !ok {
		return ClientNet{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return ClientNet{
		Namespace: t.node(c).namespace, At: c.at,
		Addrs: append([]netip.Addr(nil), c.addrs...), AddrsV6: append([]netip.Addr(nil), c.addrsV6...),
		Public: append([]netip.Addr(nil), c.public...),
	}
}
