package ways

import (
	"fmt"
	"slices"
	"time"

	"godwit/agent/peer"
	"godwit/migration"
)

// A connection carries no more than what may be on its way in one round trip. Buffers for that
// are package peer's; here is what they are to carry, and what is said where they cannot.

// Connection is one of those that a migration's memory takes.
type Connection struct {
	path  string
	rate  int64 // bit/s; 0: unknown
	rtt   time.Duration
	flows int  // subflows that it has; each has a send buffer of its own
	ours  bool // its sockets are the agents', not QEMU's
}

// supposedRate is what paths whose rate is not known should be able to carry, bit/s.
const supposedRate = 1e9

// Last is the round trip that counts for the last bytes of a transfer, of those of its paths; 0 of none. Our own data
// path brings them by the shortest. QEMU waits for all of its connections, and MPTCP sends by each of its subflows.
func Last(plan migration.Plan, trips []time.Duration) time.Duration {
	switch {
	case len(trips) == 0:
		return 0
	case plan.OwnPath():
		return slices.Min(trips)
	}
	return slices.Max(trips)
}

// Connections are one for each path, or one of MPTCP over all.
func Connections(plan migration.Plan, paths []peer.Path, trips []time.Duration) (out []Connection) {
	for k, p := range paths {
		out = append(out, Connection{p.Name, p.Rate, trips[k], 1, !plan.Direct()})
	}
	if !plan.Multipath() && plan.Transfer != "qemu-mptcp" || len(out) == 0 {
		return out
	}
	return []Connection{{"mptcp", Rate(paths), slices.Max(trips), len(out), plan.Multipath()}}
}

// MultipathWindow is the window of the one connection to a host with those buffers.
func (c Connection) MultipathWindow(there peer.Buffers) int64 {
	rate, receive := c.rate, there.Receive
	if rate == 0 {
		rate = supposedRate
	}
	if there.Larger {
		receive = 0
	}
	return peer.MultipathWindow(rate/8, c.rtt, receive)
}

// Slowed says, for hosts with those buffers, what to do at either where its kernel has the connection carry less than
// its path does, or than the limit (bit/s, 0: none).
func (c Connection) Slowed(plan migration.Plan, limit int64, here, there peer.Buffers) (out []string) {
	for _, text := range []string{
		c.slowed(limit, plan.From, "wmem", here.Send*int64(c.flows), here.Larger),
		c.slowed(limit, plan.To, "rmem", there.Receive, there.Larger),
	} {
		if text != "" {
			out = append(out, text)
		}
	}
	return out
}

// slowed says what to do where a host's kernel lets a connection have so few bytes on their way (0: it is
// not known) that it carries less than its path does, or than the limit (bit/s, 0: none); "" where
// it does not, or where the agent gives it what it needs. which is wmem or rmem.
func (c Connection) slowed(limit int64, host, which string, bytes int64, larger bool) string {
	rate := c.rate
	if rate == 0 {
		rate = supposedRate
	}
	if limit > 0 {
		rate = min(rate, limit)
	}
	if bytes <= 0 || c.rtt <= 0 || c.ours && larger && c.rate > 0 {
		return ""
	}
	carried := float64(bytes) * 8 / c.rtt.Seconds()
	if carried >= float64(rate) {
		return ""
	}
	why := "its agent may set no larger ones (it lacks CAP_NET_ADMIN):"
	switch {
	case !c.ours:
		why = "QEMU, whose connection it is, sets no larger ones:"
	case c.rate == 0:
		why = "the agents set larger ones only where the rates of uplinks are configured: configure them, or"
	}
	need := peer.Window(rate/8, c.rtt)
	if which == "rmem" {
		need = peer.ReceiveBuffer(need)
	} else {
		need = peer.SendBuffer(need) / int64(c.flows)
	}
	return fmt.Sprintf("path %s: TCP buffers of host %s carry %.0f of %.0f Mbit/s over an RTT of %v, and %s raise the last number of net.ipv4.tcp_%s there to %d or more",
		c.path, host, carried/1e6, float64(rate)/1e6, c.rtt.Round(time.Millisecond), why, which, need)
}
