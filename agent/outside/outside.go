// Package outside is the channel (guest.Channel) of a guest in which nobody can be asked: the next address is given to
// a client of DHCP that the guest has, on its tap, and who uses the old one is seen from its packets. It knows of IPv4
// alone, and of connections nothing but that something uses an address. What a guest does not do within limits.Take is
// a migration.Problem that says how far it came, and what a person may do.
package outside

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
	"godwit/agent/limits"
	"godwit/internal/clock"
	"godwit/migration"
	"godwit/netstate"
	"godwit/netstate/dhcp"
	"godwit/vm/guest"
)

// Config is the guest, and the host that it is on.
type Config struct {
	Guest   string
	NICs    []config.NIC
	Taps    []string                                             // by NIC
	Active  func() int                                           // the NIC that the guest sends by; it changes with each handover
	SetLink func(ctx context.Context, mac string, up bool) error // plugs a NIC's cable in, or pulls it
	Bridge  string                                               // that the taps are on
	MTU     int                                                  // bytes
	Server  netip.Addr                                           // names this host to clients of DHCP; invalid: the gateway is named
}

// Channel is that of a guest in which nobody can be asked. What nobody outside can do is guest.ErrUnsupported, or done
// without a word where nothing hangs on it.
type Channel struct {
	Config
	done chan struct{}

	mu      sync.Mutex
	servers map[int]*dhcp.Server // by NIC
	closed  bool
}

var _ guest.Channel = (*Channel)(nil)

const (
	// grantTime is how long a lease of the guest is: at its end the guest gives the address up, and all connections
	// with it, so that no agent may be away for longer. What takes an address back is the cable (DropAddress).
	grantTime = 24 * time.Hour
	// renewTime is after which time the guest asks again. A client that does not watch its cable, and had this address on a
	// NIC that lost it, may ask for another only as the lease ends.
	renewTime = 30 * time.Minute
	// unplugged is for how long a NIC loses its carrier, so that its client begins anew.
	unplugged = 200 * time.Millisecond
	// datagramsEnd is after how much silence a flow of UDP is thought to have ended.
	datagramsEnd = 30 * time.Second
)

// New begins without an answer to anybody: see Configure and GoOn.
func New(c Config) *Channel {
	return &Channel{Config: c, done: make(chan struct{}), servers: map[int]*dhcp.Server{}}
}

// GoOn goes on answering NIC number nic for an address that an earlier channel gave it. On error nobody answers it.
func (o *Channel) GoOn(nic int, addr netip.Prefix, gateway netip.Addr) error {
	return o.serve(nic, addr, gateway, nil)
}

// serve gives an address to NIC number nic from now on, and to no other what it had.
func (o *Channel) serve(nic int, addr netip.Prefix, gateway netip.Addr, heard func(dhcp.Word)) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return net.ErrClosed
	}
	o.unserve(nic)
	s, err := dhcp.Serve(o.Taps[nic], o.grant(nic, addr, gateway), heard)
	if err == nil {
		o.servers[nic] = s
	}
	return err
}

// grant is what NIC number nic may have.
func (o *Channel) grant(nic int, addr netip.Prefix, gateway netip.Addr) dhcp.Grant {
	server := o.Server
	if !server.IsValid() {
		server = gateway
	}
	return dhcp.Grant{
		MAC: o.NICs[nic].Hardware(), Addr: addr, Gateway: gateway,
		Server: server, MTU: o.MTU, Time: grantTime, Renew: renewTime,
	}
}

// unserve ends what serve began, if it did; under mu.
func (o *Channel) unserve(nic int) {
	if s := o.servers[nic]; s != nil {
		s.Close() //nolint:errcheck // its guest asks again
		delete(o.servers, nic)
	}
}

// Info says what is known without asking. Whether the guest has MPTCP is not.
func (o *Channel) Info(context.Context) (guest.Info, error) {
	i := guest.Info{Protocol: guest.Protocol, MPTCP: true}
	for n, nic := range o.NICs {
		i.NICs = append(i.NICs, guest.NIC{MAC: nic.MAC, Up: n == o.Active()})
	}
	return i, nil
}

// Configure gives a NIC its IPv4 address, and returns when the guest has taken it. What
// else p names is the guest's own affair.
func (o *Channel) Configure(ctx context.Context, p guest.Configure) (guest.Configured, error) {
	nic := slices.IndexFunc(o.NICs, func(n config.NIC) bool { return n.MAC == p.MAC })
	i := slices.IndexFunc(p.Addrs, func(a netip.Prefix) bool { return a.Addr().Is4() })
	if nic < 0 || nic >= len(o.Taps) || i < 0 {
		return guest.Configured{}, fmt.Errorf("give NIC %s an address by DHCP: there is no such NIC here, or no IPv4 address", p.MAC)
	}
	ctx, cancel := limits.Take.On(ctx)
	defer cancel()
	words := make(chan dhcp.Word, 16)
	addr := p.Addrs[i]
	own, err := o.has(ctx, addr.Addr(), time.Time{})
	if err != nil {
		return guest.Configured{}, o.refused(nic, err)
	}
	if err := o.serve(nic, addr, p.GatewayV4, func(w dhcp.Word) {
		select {
		case words <- w:
		default: // it repeats itself
		}
	}); err != nil {
		return guest.Configured{}, err
	}
	if own {
		return guest.Configured{}, nil
	}
	if err := o.replug(ctx, p.MAC); err != nil {
		return guest.Configured{}, err
	}
	err = o.taken(ctx, p.MAC, addr.Addr(), words)
	if errors.As(err, new(*InUseError)) {
		return guest.Configured{}, o.refused(nic, err)
	}
	if err != nil {
		err = &migration.Problem{Code: migration.CodeGuest, Text: fmt.Sprintf("guest %s: %v", o.Guest, limits.Says(ctx, err))}
	}
	return guest.Configured{}, err
}

// refused ends that a NIC is given what err says that it cannot have: not every client asks whose an address is.
func (o *Channel) refused(nic int, err error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unserve(nic)
	return err
}

// An InUseError is why the guest has not been given an address, or did not take it: somebody else has it.
type InUseError struct {
	Guest string
	Addr  netip.Addr
	By    string
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("guest %s is not given %s by DHCP: it is in use by %s", e.Guest, e.Addr, e.By)
}

// Unwrap is what a person is told where no other address is tried.
func (e *InUseError) Unwrap() error {
	return &migration.Problem{Code: migration.CodeAddress, Text: e.Error() + "; free it, or name another with --address"}
}

// Ready cannot be asked from here.
func (o *Channel) Ready(context.Context, guest.Configure) error { return guest.ErrUnsupported }

// Tell cannot be asked from here.
func (o *Channel) Tell(context.Context, string) error { return guest.ErrUnsupported }

// replug takes a NIC's carrier away for a moment: a client that watches it asks at once.
func (o *Channel) replug(ctx context.Context, mac string) error {
	if err := o.SetLink(ctx, mac, false); err != nil {
		return err
	}
	clock.Sleep(ctx, unplugged)
	return o.SetLink(context.WithoutCancel(ctx), mac, true)
}

// looksFor is for how long a client that was given an address looks whether anybody has it, at most: PROBE_WAIT, two
// times PROBE_MAX and ANNOUNCE_WAIT of RFC 5227 §1.1, and as much again.
const looksFor = 14 * time.Second

// looks says whether the client of a NIC that took an address then, or may at any moment, looks whether anybody has it.
func looks(took time.Time) bool { return time.Since(took) < looksFor }

// has says whether the guest answers for addr, which it took then, zero: it is not to take it yet; that somebody else
// does is an error. Where nobody can be asked it is nobody. Who looks is asked by what claims nothing alone, which a
// guest that filters by reverse path does not answer.
func (o *Channel) has(ctx context.Context, addr netip.Addr, took time.Time) (bool, error) {
	ask := netstate.Probe
	if looks(took) {
		ask = netstate.Ask
	}
	used, by, err := ask(ctx, o.Bridge, addr)
	if err != nil || !used {
		return false, nil //nolint:nilerr // it is asked again
	}
	if slices.ContainsFunc(o.NICs, func(n config.NIC) bool { return slices.Equal(n.Hardware(), by) }) {
		return true, nil
	}
	return false, &InUseError{o.Guest, addr, by.String()}
}

// taken waits until the guest has taken its address. The error says how far it came.
func (o *Channel) taken(ctx context.Context, mac string, addr netip.Addr, words <-chan dhcp.Word) error {
	far := fmt.Errorf("its NIC %s asks for no address by DHCP; run a client of DHCP that watches its cable on it in the guest", mac)
	took := time.Now() // or will
	for {
		select {
		case w := <-words:
			took = time.Now()
			switch w {
			case dhcp.Asks:
				far = fmt.Errorf("its NIC %s asked by DHCP and took no answer; see whether its client refuses %s", mac, addr)
			case dhcp.Other:
				far = fmt.Errorf("its NIC %s takes an address of another DHCP server; keep that from answering %s", mac, mac)
			case dhcp.Declines:
				return &InUseError{o.Guest, addr, "somebody (its NIC " + mac + " declined it)"}
			case dhcp.Takes:
				far = fmt.Errorf("its NIC %s took %s by DHCP, and does not answer there", mac, addr)
				if own, err := o.has(ctx, addr, took); own || err != nil {
					return err
				}
			}
		case <-time.After(500 * time.Millisecond):
			if own, err := o.has(ctx, addr, took); own || err != nil {
				return err
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
func (o *Channel) AwaitJoin(context.Context, guest.AwaitJoin) (guest.Joins, error) {
	return guest.Joins{}, nil
}

// TellAgain cannot be done from here.
func (o *Channel) TellAgain(context.Context, guest.TellAgain) (guest.Joins, error) {
	return guest.Joins{}, guest.ErrUnsupported
}

// MakeMain is nothing that can be done from here: the guest's client sets its routes.
func (o *Channel) MakeMain(context.Context, string) error { return nil }

// Retire cannot move an address to another NIC: what the old one has stays there until the end of the lease.
func (o *Channel) Retire(context.Context, guest.Retire) error { return guest.ErrUnsupported }

// Users are the flows that still take the detour of addrs.
func (o *Channel) Users(_ context.Context, addrs ...netip.Addr) (guest.Users, error) {
	var users guest.Users
	flows, err := netstate.Flows(o.Guest)
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
func (o *Channel) Connections(context.Context, ...netip.Addr) (guest.Connections, error) {
	return guest.Connections{}, errors.New("nobody in the guest can be asked (agent: dhcp)")
}

// Listeners are known to the guest alone.
func (o *Channel) Listeners(context.Context, ...netip.Addr) (guest.Listeners, error) {
	return guest.Listeners{}, guest.ErrUnsupported
}

// DropAddress ends what the spare NIC has: nobody answers its client any more, and its
// cable is pulled, by which an ordinary client gives its address up.
func (o *Channel) DropAddress(ctx context.Context, _ ...netip.Addr) error {
	spare := 1 - o.Active()
	if spare < 0 || spare >= len(o.Taps) {
		return nil
	}
	o.mu.Lock()
	o.unserve(spare)
	o.mu.Unlock()
	return o.SetLink(ctx, o.NICs[spare].MAC, false)
}

// Ticks are the business of a program in the guest: there are none.
func (o *Channel) Ticks(_ context.Context, every time.Duration) error {
	if every != 0 {
		return fmt.Errorf("ticks: %w", guest.ErrUnsupported)
	}
	return nil
}

// Run and Call need one, too.
func (o *Channel) Run(context.Context, ...string) error { return guest.ErrUnsupported }

// Call carries nothing out; see Run.
func (o *Channel) Call(context.Context, string, any, any) error { return guest.ErrUnsupported }

// Events never come.
func (o *Channel) Events() <-chan guest.Event { return nil }

// Done is closed when the channel is.
func (o *Channel) Done() <-chan struct{} { return o.done }

// Close ends the servers.
func (o *Channel) Close() error {
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
