package main

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"godwit/netstate/mptcp"
	"godwit/vm/guest"
)

// TestChannelTellsDialled: connections that the guest opened are told from those that it took, and where their peers
// take no announced address they are not waited for as long as others.
func TestChannelTellsDialled(t *testing.T) {
	each(t, func(t *testing.T, c guest.Channel) {
		ctx := t.Context()
		_, err := c.Configure(ctx, configureOld())
		must(t, err)
		must(t, mptcp.SetLimits(8, 0))
		connect(t, true) // from remote, which is an address of this guest's, too
		for addr, dialled := range map[netip.Addr]int{oldV4.Addr(): 0, remote: 1} {
			users, err := c.Users(ctx, addr)
			must(t, err)
			want(t, "MPTCP connections at "+addr.String()+", and dialled of them", [2]int{users.MPTCP, users.Dialled}, [2]int{1, dialled})
		}
		_, err = c.Configure(ctx, configureNext())
		must(t, err)
		const long = 3 * time.Minute
		joins, err := c.AwaitJoin(ctx, guest.AwaitJoin{Addrs: []netip.Addr{nextV4.Addr()}, Old: []netip.Addr{remote}, LimitMS: long.Milliseconds(), SpareIDs: []uint8{21, 22}})
		must(t, err)
		want(t, "total, joined, unable", [3]int{joins.Total, joins.Joined, len(joins.Unable)}, [3]int{1, 0, 1})
		want(t, "waited for to the end", joins.WaitedMS >= long.Milliseconds(), false)
		why := guest.WhyDialledPortless
		if i, err := c.Info(ctx); err == nil && slices.Contains(i.Capabilities, guest.CapPorts) {
			why = guest.WhyDialled
		}
		want(t, "why", joins.Unable[0].Why, why)
	})
}
