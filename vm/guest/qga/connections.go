package qga

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"godwit/vm/guest"
)

// multipathScript lists in the same way as socketScript, after a line "mptcp", the MPTCP connections by the ends with
// which they began: whatever subflows they have by now, and in which order ss has these, that names them. One line
// "unlisted" says that ss or the kernel (mptcp_diag) cannot.
const multipathScript = `
echo mptcp
{ ss -HOnMai 2>/dev/null || :; } | awk 'NF { n++ }
NF && $1 != "LISTEN" { t = "-"
for (i = 6; i <= NF; i++) if ($i ~ /^token:/) t = "token:0/" substr($i, 7)
print $1, $4, $5, t, "-" }
END { if (!n) print "unlisted" }'
`

// began are the MPTCP connections by their tokens, as shortToken has them.
func (t sockets) began() map[string]socket {
	out := map[string]socket{}
	for _, s := range t.multipath {
		if s.token != "" {
			out[shortToken(s.token)] = s
		}
	}
	return out
}

// beganOf are they where some of them stayed behind, who are to be named by that.
func (c *Client) beganOf(ctx context.Context, behind map[string]socket) map[string]socket {
	if len(behind) == 0 {
		return nil
	}
	table, err := c.list(ctx, "set -e"+multipathScript)
	if err != nil {
		return nil // they are named by one of their subflows
	}
	return table.began()
}

// shortToken is a token without the zeros that ss puts before a subflow's, and before a connection's not.
func shortToken(token string) string { return strings.TrimLeft(token, "0") }

// Connections lists the guest's connections that have an end on one of addrs. An MPTCP connection is named by the ends
// with which it began, and has an end there, too; one that fell back counts as TCP, and that it did is not known. A
// handshake that waits for its third packet is none yet: what it will be is not known, as it may be a join.
func (c *Client) Connections(ctx context.Context, addrs ...netip.Addr) (guest.Connections, error) {
	table, err := c.list(ctx, socketScript+"\n"+multipathScript+forwardedScript(addrs))
	if err != nil {
		return guest.Connections{}, err
	}
	if table.unlisted && slices.ContainsFunc(table.tcp, func(s socket) bool { return s.token != "" }) {
		return guest.Connections{}, errors.New("the guest does not tell MPTCP connections from their subflows: its kernel has no mptcp_diag, or its ss no -M")
	}
	all := table.connections(addrs)
	return all, said("connections", &all)
}

func (t sockets) connections(addrs []netip.Addr) guest.Connections {
	all := guest.Connections{List: []guest.Connection{}}
	began := t.began()
	place := map[string]int{} // of an MPTCP connection in the list, by token
	add := func(one guest.Connection) {
		if len(all.List) >= guest.ConnectionsMost {
			all.Omitted++
			return
		}
		all.List = append(all.List, one)
	}
	on := func(s socket) bool {
		as, known := began[shortToken(s.token)]
		return slices.Contains(addrs, s.local.Addr()) || s.token != "" && known && slices.Contains(addrs, as.local.Addr())
	}
	for _, s := range t.tcp {
		switch {
		case !on(s), !s.live(), s.token == "" && s.state == "SYN-RECV":
		case s.token == "":
			add(guest.Connection{Kind: guest.KindTCP, Local: s.local, Remote: s.remote, State: s.state, Outward: s.outward})
		default:
			if _, listed := place[shortToken(s.token)]; !listed {
				as, known := began[shortToken(s.token)]
				if !known {
					as = s
				}
				place[shortToken(s.token)] = len(all.List)
				add(guest.Connection{Kind: guest.KindMPTCP, Local: as.local, Remote: as.remote, State: s.state})
			}
		}
	}
	for _, s := range t.multipath { // no subflow of it lives
		if _, listed := place[shortToken(s.token)]; listed || s.token == "" || !s.live() || !slices.Contains(addrs, s.local.Addr()) {
			continue
		}
		if !slices.ContainsFunc(t.tcp, func(one socket) bool { return one.local == s.local && one.remote == s.remote }) { // or it fell back, or begins
			add(guest.Connection{Kind: guest.KindMPTCP, Local: s.local, Remote: s.remote})
		}
	}
	for _, s := range t.tcp { // its subflows may be on any address
		if i, listed := place[shortToken(s.token)]; listed && s.token != "" && s.live() && i < len(all.List) {
			all.List[i].Working = append(all.List[i].Working, s.local)
		}
	}
	for _, s := range t.udp {
		if slices.Contains(addrs, s.local.Addr()) {
			add(guest.Connection{Kind: guest.KindUDP, Local: s.local, Remote: s.remote})
		}
	}
	return all
}
