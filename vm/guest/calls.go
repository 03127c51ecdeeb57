package guest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"godwit/internal/oneline"
)

// Info describes the guest.
func (c *Client) Info(ctx context.Context) (Info, error) {
	var info Info
	err := c.Call(ctx, "info", nil, &info)
	return info, err
}

// Configure gives a NIC its addresses; see Configure, the parameters.
func (c *Client) Configure(ctx context.Context, p Configure) (Configured, error) {
	var made Configured
	err := c.Call(ctx, "configure", p, &made)
	return made, err
}

// Ready does beforehand what Configure with the same parameters would do and nobody
// notices; without addresses it undoes that. It needs CapReady.
func (c *Client) Ready(ctx context.Context, p Configure) error {
	return c.Call(ctx, CapReady, p, nil)
}

// Tell tells peers of the addresses that the NIC of that MAC was made ready for, and returns when they were told. They
// come to where the guest has that, before it has arrived or after. It needs CapTell; Ready without addresses takes it
// back.
func (c *Client) Tell(ctx context.Context, mac string) error {
	return c.Call(ctx, CapTell, map[string]string{"mac": mac}, nil)
}

// AwaitJoin returns when every MPTCP connection with a subflow on an old address
// has an established one on a new address, or has ended, or when the limit has
// passed. Join events tell of the progress. Connections that can never follow
// (fallen back to TCP) are not waited for; those whose peer does not come are,
// until the limit.
func (c *Client) AwaitJoin(ctx context.Context, p AwaitJoin) (Joins, error) {
	return c.joins(ctx, "await_join", p)
}

func (c *Client) joins(ctx context.Context, method string, params any) (Joins, error) {
	var joins Joins
	err := c.Call(ctx, method, params, &joins)
	for i := range joins.Unable {
		joins.Unable[i].Why = shown(joins.Unable[i].Why)
	}
	return joins, err
}

// shown is as much of why as people are shown.
func shown(why string) string { return oneline.Of(why[:min(len(why), longestWhy)]) }

// MakeMain sends unbound sockets' packets by the NIC's gateway from now on.
func (c *Client) MakeMain(ctx context.Context, mac string) error {
	return c.Call(ctx, "make_main", map[string]string{"mac": mac}, nil)
}

// ErrBound is Retire's where addresses are not to be kept and a connection has no working
// subflow elsewhere: nothing was done. A subflow can break right after it joined.
var ErrBound = errors.New("connections have no subflow elsewhere")

// Retire takes addresses from a NIC; see Retire, the parameters.
func (c *Client) Retire(ctx context.Context, p Retire) error {
	err := c.Call(ctx, "retire", p, nil)
	if err != nil && strings.Contains(err.Error(), ErrBound.Error()) { // a text is all that travels
		return fmt.Errorf("%w (%w)", ErrBound, err)
	}
	return err
}

// Users says who needs the addresses.
func (c *Client) Users(ctx context.Context, addrs ...netip.Addr) (Users, error) {
	var users Users
	err := c.Call(ctx, "users", map[string][]netip.Addr{"addrs": addrs}, &users)
	users.Uncounted = shown(users.Uncounted)
	return users, err
}

// DropAddress removes kept addresses and their source routes.
func (c *Client) DropAddress(ctx context.Context, addrs ...netip.Addr) error {
	return c.Call(ctx, "drop_address", map[string][]netip.Addr{"addrs": addrs}, nil)
}

// Ticks makes the guest send a tick event at that interval, 0 never. Intervals
// are whole milliseconds.
func (c *Client) Ticks(ctx context.Context, every time.Duration) error {
	return c.Call(ctx, "ticks", map[string]int64{"every_ms": every.Milliseconds()}, nil)
}

// Run starts workloads (the lines of package workload). It returns when memory
// and disk areas have been filled once. A line that runs already is not begun again.
func (c *Client) Run(ctx context.Context, lines ...string) error {
	return c.Call(ctx, "run", map[string][]string{"lines": lines}, nil)
}

// Verify checks every page of every area against what was written last.
func (c *Client) Verify(ctx context.Context) (Verified, error) {
	var verified Verified
	err := c.Call(ctx, "verify", nil, &verified)
	return verified, err
}

// Exec runs a shell command in the guest and waits for its end or its timeout.
func (c *Client) Exec(ctx context.Context, command string, timeout time.Duration) (Executed, error) {
	var executed Executed
	err := c.Call(ctx, "exec", Exec{Command: command, TimeoutMS: timeout.Milliseconds()}, &executed)
	return executed, err
}

// Counters returns what the guest's own meters counted.
func (c *Client) Counters(ctx context.Context) (Counters, error) {
	var counters Counters
	err := c.Call(ctx, "counters", nil, &counters)
	return counters, err
}

// Reboot restarts the guest soon after it returns. Under -no-reboot, QEMU exits.
func (c *Client) Reboot(ctx context.Context) error { return c.Call(ctx, "reboot", nil, nil) }
