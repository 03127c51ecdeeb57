package traffic

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"godwit/netstate/mptcp"
)

// iperf3's sockets are its own. What the kernel lists of them in the client's namespace says
// whether they speak MPTCP, where they have got to, and whether the guest still acknowledges
// what they send: iperf3 itself counts what its sockets take, also when nobody hears them.

// lookShare keeps the list, which is long where a client has thousands of sockets, from being
// read for more than a tenth of the time.
const lookShare = 10

// looksCompared are so many readings, of which the quickest says how long one takes. Of the others some may have waited
// for a processor: ten times that would be without a look, and would be told as the program's own wait.
const looksCompared = 5

// others are the connections of a flow's program at one time.
type others struct {
	next  int64              // not read again before, unix ns
	took  []int64            // ns, the last readings
	found []mptcp.Connection // those that speak MPTCP
	acked map[netip.AddrPort]uint64
	heard map[string]*waits // by connection: between looks that saw more acknowledged
	data  map[uint16]bool   // local ports of those for data, as the program told; empty: not told
}

// look reads the list again where that is due, and returns the longest wait that ended.
// The caller holds state.
func (p *program) look(at int64) (gap int64) {
	if p.Kind != Iperf3 || at < p.others.next {
		return 0
	}
	connections, plain, err := mptcp.All()
	p.others.rest(at, now()-at)
	if err != nil {
		return 0
	}
	return p.others.take(connections, plain, netip.AddrPortFrom(p.Target, p.port()), at, p.Connections)
}

// rest says when the list is read again that was read at a time, and took so long.
func (o *others) rest(at, took int64) {
	o.took = append(o.took[max(0, len(o.took)-looksCompared+1):], took)
	o.next = at + lookShare*slices.Min(o.took)
}

// take notes what the kernel listed of a flow of so many connections, and returns the longest wait that ended.
func (o *others) take(connections []mptcp.Connection, plain []mptcp.Socket, to netip.AddrPort, at int64, of int) (gap int64) {
	o.found = nil
	for _, c := range connections {
		if c.Remote != to || c.Fallback {
			continue
		}
		o.found = append(o.found, c)
		more := false
		for _, s := range c.Subflows {
			more = o.more(s.Local, s.BytesAcked) || more
		}
		if o.carries(c.Local.Port(), c.Subflows) {
			gap = max(gap, o.hear(fmt.Sprint(c.Token), more, at, of))
		}
	}
	for _, s := range plain {
		if s.Remote == to && o.carries(s.Local.Port(), nil) {
			gap = max(gap, o.hear(s.Local.String(), o.more(s.Local, s.BytesAcked), at, of))
		}
	}
	return gap
}

// carries says whether a connection is for data. That for control is silent for as long as the others run, but for
// the end of a subflow, which is acknowledged like data. A kernel that lists no MPTCP sockets tells ports of
// subflows alone.
func (o *others) carries(local uint16, subflows []mptcp.Subflow) bool {
	return len(o.data) == 0 || o.data[local] ||
		local == 0 && slices.ContainsFunc(subflows, func(s mptcp.Subflow) bool { return o.data[s.Local.Port()] })
}

// told takes a line of iperf3's in: it names its connections for data.
func (o *others) told(line string) {
	m := connectedLine.FindStringSubmatch(line)
	if m == nil {
		return
	}
	port, err := strconv.ParseUint(m[1], 10, 16)
	if err != nil {
		return
	}
	if o.data == nil {
		o.data = map[uint16]bool{}
	}
	o.data[uint16(port)] = true
}

// more says whether more is acknowledged on a socket than when it was seen before.
func (o *others) more(local netip.AddrPort, acked uint64) bool {
	if o.acked == nil {
		o.acked = map[netip.AddrPort]uint64{}
	}
	before, seen := o.acked[local]
	o.acked[local] = acked
	return seen && acked > before
}

// hear notes whether one of so many connections was seen to go on, and returns how long that
// was waited for.
func (o *others) hear(connection string, more bool, at int64, of int) int64 {
	if !more {
		return 0
	}
	if o.heard == nil {
		o.heard = map[string]*waits{}
	}
	if o.heard[connection] == nil {
		o.heard[connection] = newWaits(max(1, of))
	}
	return o.heard[connection].arrive(at)
}

// fresh says whether of each of so many connections something was acknowledged since then; where the
// kernel told nothing of any, whether iperf3's sockets took something, at progress.
func (o *others) fresh(since int64, of int, progress int64) bool {
	if len(o.heard) == 0 {
		return progress > since
	}
	n := 0
	for _, w := range o.heard {
		if w.last > since {
			n++
		}
	}
	return n >= max(1, of)
}

// longest is how long the connection waits now that waits longest, and since when.
func (o *others) longest(at int64) (wait, since int64) {
	for _, w := range o.heard {
		if at-w.last > wait {
			wait, since = at-w.last, w.last
		}
	}
	return wait, since
}

// speaksMPTCP says whether all that the program has do: iperf3 has one connection more than it
// measures with, for control.
func (p *program) speaksMPTCP(found []mptcp.Connection) bool {
	return len(found) > max(1, p.Connections)
}

// subflowsOf lists the subflows of the first connections for a sample.
func subflowsOf(found []mptcp.Connection) (all []Subflow) {
	for i, c := range found[:min(len(found), shownConnections)] {
		for _, s := range c.Subflows {
			all = append(all, Subflow{
				Connection: i, Local: s.Local, Remote: s.Remote, Established: s.State == mptcp.StateEstablished,
				RTT: float64(s.RTT.Microseconds()) / 1000, Retransmits: int64(s.Retransmits), Sent: s.BytesAcked, Received: s.BytesReceived,
			})
		}
	}
	return all
}

// forData are the MPTCP connections that are for data, what was heard last of them first; none where the program did not
// tell which.
func (o *others) forData() []mptcp.Connection {
	if len(o.data) == 0 {
		return nil
	}
	last := func(c mptcp.Connection) int64 {
		if w := o.heard[fmt.Sprint(c.Token)]; w != nil {
			return w.last
		}
		return 0
	}
	data := slices.DeleteFunc(slices.Clone(o.found), func(c mptcp.Connection) bool { return !o.carries(c.Local.Port(), c.Subflows) })
	slices.SortStableFunc(data, func(a, b mptcp.Connection) int { return cmp.Compare(last(b), last(a)) })
	return data
}

// remotesOf counts the connections that have an established subflow to an address.
func remotesOf(found []mptcp.Connection) map[netip.Addr]int {
	counts := map[netip.Addr]int{}
	for _, c := range found {
		here := map[netip.Addr]bool{}
		for _, s := range c.Subflows {
			if a := s.Remote.Addr(); s.State == mptcp.StateEstablished && !here[a] {
				here[a] = true
				counts[a]++
			}
		}
	}
	return counts
}

// everywhere are the addresses to which each of the connections has an established subflow.
func everywhere(found []mptcp.Connection) (addrs []netip.Addr) {
	for a, n := range remotesOf(found) {
		if n == len(found) {
			addrs = append(addrs, a)
		}
	}
	return addrs
}

// remotes is that for a sample: of the connections for data, or, where the program did not tell which these
// are, of as many as it has, where all that it has are. The caller holds state.
func (p *program) remotes() map[netip.Addr]int {
	if data := p.others.forData(); len(data) > 0 {
		return remotesOf(data)
	}
	counts := map[netip.Addr]int{}
	if p.speaksMPTCP(p.others.found) {
		for _, a := range everywhere(p.others.found) {
			counts[a] = max(1, p.Connections)
		}
	}
	return counts
}
