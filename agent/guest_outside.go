package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/limits"
	"godwit/internal/clock"
	"godwit/migration"
	"godwit/netstate"
	"godwit/netstate/dhcp"
	"godwit/vm/guest"
)

// outside is the channel of a guest in which nobody can be asked: the next address is
// given to a DHCP client of its own, and who uses the old one is seen from its packets.
type outside struct {
	a    *Agent
	g    *Guest
	done chan struct{}

	mu      sync.Mutex
	servers map[int]*dhcp.Server // by NIC
	closed  bool
}

var _ guest.Channel = (*outside)(nil)

const (
	// grantTime is how long a lease of the guest is. It asks again after half of it; so
	// long may an agent be away, and the lease of a tunnel is over before.
	grantTime = time.Hour
	// unplugged is for how long a NIC loses its carrier, so that its client begins anew.
	unplugged = 200 * time.Millisecond
	// datagramsEnd is after how much silence a flow of UDP is thought to have ended.
	datagramsEnd = 30 * time.Second
)

// fromOutside is the channel of a guest whose description says agent: dhcp. It goes on
// answering for the addresses that were given before.
func (a *Agent) fromOutside(g *Guest) *outside {
	o := &outside{a: a, g: g, done: make(chan struct{}), servers: map[int]*dhcp.Server{}}
	nic := g.Held.Active
	for _, addr := range g.Held.Addresses {
		if !addr.Granted || nic < 0 || nic >= len(g.Held.Taps) {
			continue
		}
		if err := o.serve(nic, addr.Prefix, addr.Gateway, nil); err != nil {
			a.log.Warn("go on serving a guest", "guest", g.name(), "error", err)
		}
		nic = 1 - nic // the kept one is on the other
	}
	return o
}

// serve gives an address to NIC number nic from now on, and to no other what it had.
func (o *outside) serve(nic int, addr netip.Prefix, gateway netip.Addr, heard func(dhcp.Word)) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return net.ErrClosed
	}
	if s := o.servers[nic]; s != nil {
		s.Close() //nolint:errcheck // it is replaced
		delete(o.servers, nic)
	}
	s, err := dhcp.Serve(o.g.Held.Taps[nic], dhcp.Grant{
		MAC: o.g.Held.Description.NICs[nic].Hardware(), Addr: addr, Gateway: gateway,
		Server: o.a.serverID(gateway), MTU: o.a.config.Network.MTU, Time: grantTime,
	}, heard)
	if err == nil {
		o.servers[nic] = s
	}
	return err
}

// serverID names this host as a DHCP server: its own address, so that a server of the
// site's LAN does not believe to be meant.
func (a *Agent) serverID(gateway netip.Addr) netip.Addr {
	for _, u := range a.config.Uplinks {
		if u.Address.Is4() {
			return u.Address
		}
	}
	return gateway
}

// Info says what is known without asking. Whether the guest has MPTCP is not.
func (o *outside) Info(context.Context) (guest.Info, error) {
	i := guest.Info{Protocol: guest.Protocol, MPTCP: true}
	for n, nic := range o.g.Held.Description.NICs {
		i.NICs = append(i.NICs, guest.NIC{MAC: nic.MAC, Up: n == o.g.Held.Active})
	}
	return i, nil
}

// Configure gives a NIC its IPv4 address, and returns when the guest has taken it. What
// else p names is the guest's own affair.
func (o *outside) Configure(ctx context.Context, p guest.Configure) (guest.Configured, error) {
	nics := o.g.Held.Description.NICs
	nic := slices.IndexFunc(nics, func(n config.NIC) bool { return n.MAC == p.MAC })
	i := slices.IndexFunc(p.Addrs, func(a netip.Prefix) bool { return a.Addr().Is4() })
	if nic < 0 || nic >= len(o.g.Held.Taps) || i < 0 {
		return guest.Configured{}, fmt.Errorf("give NIC %s an address by DHCP: there is no such NIC here, or no IPv4 address", p.MAC)
	}
	ctx, cancel := limits.Take.On(ctx)
	defer cancel()
	words := make(chan dhcp.Word, 16)
	addr := p.Addrs[i]
	if err := o.serve(nic, addr, p.GatewayV4, func(w dhcp.Word) {
		select {
		case words <- w:
		default: // it repeats itself
		}
	}); err != nil {
		return guest.Configured{}, err
	}
	if !o.has(ctx, addr.Addr()) {
		if err := o.replug(ctx, p.MAC); err != nil {
			return guest.Configured{}, err
		}
		if err := o.taken(ctx, p.MAC, addr.Addr(), words); err != nil {
			return guest.Configured{}, &migration.Problem{Code: migration.CodeGuest, Text: fmt.Sprintf("guest %s: %v", o.g.name(), limits.Says(ctx, err))}
		}
	}
	return guest.Configured{}, nil
}

// Ready cannot be asked from here.
func (o *outside) Ready(context.Context, guest.Configure) error { return guest.ErrUnsupported }

// replug takes a NIC's carrier away for a moment: a client that watches it asks at once.
func (o *outside) replug(ctx context.Context, mac string) error {
	cable, ok := o.g.Machine.(interface {
		SetLink(ctx context.Context, mac string, up bool) error
	})
	if !ok {
		return nil
	}
	if err := cable.SetLink(ctx, mac, false); err != nil {
		return err
	}
	sleep(ctx, unplugged)
	return cable.SetLink(context.WithoutCancel(ctx), mac, true)
}

// has says whether the guest answers for addr.
func (o *outside) has(ctx context.Context, addr netip.Addr) bool {
	used, by, err := netstate.Probe(ctx, o.a.config.Network.Bridge, addr)
	return err == nil && used && slices.ContainsFunc(o.g.Held.Description.NICs, func(n config.NIC) bool { return slices.Equal(n.Hardware(), by) })
}

// taken waits until the guest has taken its address. The error says how far it came.
func (o *outside) taken(ctx context.Context, mac string, addr netip.Addr, words <-chan dhcp.Word) error {
	far := fmt.Errorf("its NIC %s asks for no address by DHCP; run a client of DHCP on it in the guest", mac)
	for {
		select {
		case w := <-words:
			switch w {
			case dhcp.Asks:
				far = fmt.Errorf("its NIC %s asked by DHCP and took no answer; see whether its client refuses %s", mac, addr)
			case dhcp.Other:
				far = fmt.Errorf("its NIC %s takes an address of another DHCP server; keep that from answering %s", mac, mac)
			case dhcp.Declines:
				return fmt.Errorf("its NIC %s declines %s: somebody else has it", mac, addr)
			case dhcp.Takes:
				far = fmt.Errorf("its NIC %s took %s by DHCP, and does not answer there", mac, addr)
				if o.has(ctx, addr) {
					return nil
				}
			}
		case <-time.After(500 * time.Millisecond):
			if o.has(ctx, addr) {
				return nil
			}
		case <-o.done:
			return net.ErrClosed
		case <-ctx.Done():
			return far
		}
	}
}

// AwaitJoin waits for nobody: which connections follow is the business of the guest's own
// path manager.
func (o *outside) AwaitJoin(context.Context, guest.AwaitJoin) (guest.Joins, error) {
	return guest.Joins{}, nil
}

// MakeMain is nothing that can be done from here: the guest's client sets its routes.
func (o *outside) MakeMain(context.Context, string) error { return nil }

// Retire cannot move an address to another NIC; see incoming.retire.
func (o *outside) Retire(context.Context, guest.Retire) error { return guest.ErrUnsupported }

// Users are the flows that still take the detour of addrs.
func (o *outside) Users(_ context.Context, addrs ...netip.Addr) (guest.Users, error) {
	var users guest.Users
	flows, err := netstate.Flows(o.g.name())
	for _, f := range flows {
		if !slices.Contains(addrs, f.Guest.Addr()) {
			continue
		}
		switch {
		case f.Protocol == guest.KindTCP:
			users.TCP++
		case f.Idle < datagramsEnd:
			users.UDP++
		}
	}
	return users, err
}

// Connections are known to the guest alone.
func (o *outside) Connections(context.Context, ...netip.Addr) (guest.Connections, error) {
	return guest.Connections{}, errors.New("nobody in the guest can be asked (agent: dhcp)")
}

// DropAddress ends what the spare NIC has: nobody answers its client any more, and its
// cable is pulled, by which an ordinary client gives its address up.
func (o *outside) DropAddress(ctx context.Context, _ ...netip.Addr) error {
	spare := 1 - o.g.Held.Active
	if spare < 0 || spare >= len(o.g.Held.Taps) {
		return nil
	}
	o.mu.Lock()
	if s := o.servers[spare]; s != nil {
		s.Close() //nolint:errcheck // a socket
		delete(o.servers, spare)
	}
	o.mu.Unlock()
	cable, ok := o.g.Machine.(interface {
		SetLink(ctx context.Context, mac string, up bool) error
	})
	if !ok {
		return nil
	}
	return cable.SetLink(ctx, o.g.Held.Description.NICs[spare].MAC, false)
}

// Ticks are the business of a program in the guest.
func (o *outside) Ticks(context.Context, time.Duration) error { return nil }

// Run and Call need one, too.
func (o *outside) Run(context.Context, ...string) error { return guest.ErrUnsupported }

// Call carries nothing out; see Run.
func (o *outside) Call(context.Context, string, any, any) error { return guest.ErrUnsupported }

// Events never come.
func (o *outside) Events() <-chan guest.Event { return nil }

// Done is closed when the channel is.
func (o *outside) Done() <-chan struct{} { return o.done }

// Close ends the servers.
func (o *outside) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil
	}
	o.closed = true
	close(o.done)
	for _, s := range o.servers {
		s.Close() //nolint:errcheck // sockets
	}
	return nil
}

// grantable are those of the next addresses that can be given by DHCP, or to a guest
// that has IPv6 turned off: of IPv4.
func (a *Agent) grantable(offer Offer, next []migration.Address) ([]migration.Address, error) {
	next = slices.DeleteFunc(next, func(addr migration.Address) bool {
		if addr.Prefix.Addr().Is4() {
			return false
		}
		a.promised.release(offer.Plan.Guest, addr.Prefix.Addr())
		return true
	})
	if len(next) == 0 {
		why := "the guest has IPv6 turned off; turn it on, or"
		if offer.Description.Silent() {
			why = "addresses are given by DHCP in IPv4 only;"
		}
		return nil, refuses(a.config.Host, offer, migration.CodeAddress, "its guests' subnet is IPv6 alone, and %s use --network tunnel", why)
	}
	return next, nil
}

// grantFirst gives a guest that boots its first address, as often as it takes.
func (a *Agent) grantFirst(ctx context.Context, g *Guest) error {
	g.Held.Addresses = slices.DeleteFunc(g.Held.Addresses, func(addr migration.Address) bool { return !addr.Prefix.Addr().Is4() })
	for i := range g.Held.Addresses {
		g.Held.Addresses[i].Granted = true
	}
	ctx, cancel := limits.Boot.On(ctx)
	defer cancel()
	o := a.fromOutside(g)
	g.speakBy(o)
	for {
		_, err := o.Configure(ctx, o.a.configuration(g, g.Held.Active, g.Held.Addresses, 0, true))
		if err == nil || ctx.Err() != nil {
			return limits.Says(ctx, err)
		}
	}
}

// unseen says whether a guest's tunnel is so young that a silent connection through it
// may not have been seen yet.
func (a *Agent) unseen(name string) bool {
	return slices.ContainsFunc(a.detours.List(name), func(d detour.Detour) bool { return clock.Now().Sub(d.Up) < netstate.FlowMemory })
}
