package follow

import (
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"godwit/netstate/mptcp"
	"godwit/vm/guest"
)

const (
	// nudgeAfter is how long a connection may stay behind all others before its peer is
	// told again (an announcement is a bare acknowledgement: it can get lost). While
	// others still come it is too early: everybody would hear of it, and thousands
	// would join once more.
	nudgeAfter = 1500 * time.Millisecond
	// nudgeSlow is nudgeAfter in terms of the quickest listing, where that is longer: it is so in
	// a guest with many connections, or a slow one, which has joins to answer first.
	nudgeSlow = 10
	// crowd are so many that all of them, told again, take longer than those who were not reached wait for the kernel,
	// which tells them alone: of 10 000 connections of an emulated guest all had come after 12 s, or, where one was not
	// reached and all were told again, after 68.
	crowd = 200
	// repeatsMost bounds what the kernel is waited for, where somebody chose its default of two minutes.
	repeatsMost = 15 * time.Second
)

// repeats is after how long the kernel here announces an address again to a connection that has not answered.
func repeats() time.Duration {
	text, err := os.ReadFile("/proc/sys/net/mptcp/add_addr_timeout")
	if err != nil {
		return 0
	}
	s, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return min(time.Duration(s)*time.Second, repeatsMost)
}

// patience is how long nobody has come when those that are behind are told again, and how often after that. Where none
// of a crowd has come, as to a listener that is closed, the kernel has nothing to tell again.
func (w *watch) patience() time.Duration {
	p := max(nudgeAfter, nudgeSlow*w.quick)
	if w.total() >= crowd && len(w.joined) > 0 {
		p = max(p, min(2*w.repeats+nudgeAfter, w.limit/4)) // there is to be time for those who are told then
	}
	return p
}

// nudgeWhenDue nudges, if nobody has come for long and nobody is about to, and says when to
// look again.
func (w *watch) nudgeWhenDue(now time.Time) time.Duration {
	patience := w.patience()
	if wait := patience - now.Sub(w.came); wait > 0 {
		return wait
	}
	switch {
	case w.pending > 0:
	case w.vacate():
		w.roomy = true
		return vacatedFor
	default:
		w.nudge()
	}
	return patience
}

// replaceAt is the nudge that replaces an endpoint nobody came to.
const replaceAt = 3

// nudge announces again, under a fresh id, for those that are behind: with a port of
// its own, where the kernel listens, which also reaches connections whose listener is
// gone. If nobody has come although it was done twice (a firewall may not know that
// port), the endpoint itself is replaced. Earlier, or later, that would cut the
// subflows of those who come or came.
func (w *watch) nudge() {
	w.nudges++
	now := time.Now()
	w.told = now
	_ = mptcp.Abort(w.deaf()...)               // those that stay are told all the same
	if w.crowded && w.nudges > 1 && !w.roomy { // once everybody is told, whoever has come
		return
	}
	w.roomy = false
	endpoints, err := mptcp.Endpoints()
	if err != nil {
		return
	}
	w.spare = slices.DeleteFunc(w.spare, func(id uint8) bool { // somebody else gave it to an endpoint
		return slices.ContainsFunc(endpoints, func(e mptcp.Endpoint) bool { return e.ID == id })
	})
	for _, e := range endpoints {
		if !slices.Contains(w.params.Addrs, e.Addr) || e.Port != 0 || len(w.spare) == 0 || !w.behindIn(e.Addr) {
			continue
		}
		fresh := mptcp.Endpoint{ID: w.spare[0], Addr: e.Addr, Dev: e.Dev, Flags: mptcp.FlagSignal}
		w.spare = w.spare[1:]
		var err error
		if len(w.joined) == 0 && w.nudges == replaceAt {
			_ = mptcp.DelEndpoint(e.ID, e.Addr)
			err = mptcp.AddEndpoint(fresh)
		} else {
			err = addWithPort(fresh)
		}
		// What cannot be announced again is reported as left behind.
		if err == nil {
			w.used = append(w.used, fresh.ID)
			w.spoke = now
			clear(w.heard)
		}
	}
}

// mostBeside is how many subflows a connection may come to have beside the first: one below the most that kernels take (8,
// net/mptcp's protocol.h). Peers that had been full were seen to take no address any more, also when they had room again.
const mostBeside = 7

// fills says whether another announcement may bring a connection that has joined beyond mostBeside: whoever meshes joins
// from each of its addresses again.
func fills(c mptcp.Connection, next []netip.Addr) bool {
	beside, from := 0, map[netip.Addr]bool{}
	for _, s := range c.Subflows {
		if s.State == mptcp.StateClose {
			continue
		}
		if s.Local != c.Local || s.Remote != c.Remote { // the first is gone after a move
			beside++
		}
		if slices.Contains(next, s.Local.Addr()) {
			from[s.Remote.Addr()] = true
		}
	}
	return beside+len(from) > mostBeside
}

// deafAfter is how many times a subflow has sent again without an answer.
const deafAfter = 2

// deaf are subflows of those that are behind whose client does not answer there any more,
// where it does on another: it has moved itself. The kernel announces by the first subflow
// that is established, which may be such a one for as long as it keeps sending again, or, where it has nothing to
// send, for good: of a client that is known to have left, those go, too, on which it was not heard after that. All
// of them are withdrawn with the old address anyway.
func (w *watch) deaf() []mptcp.Subflow {
	var deaf []mptcp.Subflow
	for _, c := range w.behind {
		var silent []mptcp.Subflow
		answered := false
		since, left := w.moves.since(c.Token)
		for _, s := range c.Subflows {
			switch {
			case s.State != mptcp.StateEstablished || !slices.Contains(w.params.Old, s.Local.Addr()):
			case s.Unanswered >= deafAfter, left && s.Silent >= since:
				silent = append(silent, s)
			case s.Unanswered == 0 && s.FullyEstablished:
				answered = true
			}
		}
		if answered {
			deaf = append(deaf, silent...)
		}
	}
	return deaf
}

// Tidy withdraws those announcements with a port of their own that nobody depends on: each takes a place of the few
// that there are, and peers that had come already may have made one more subflow there, which counts against their
// limits at the next move. It is for when the old addresses have been left: the kernel withdraws an announcement by a
// connection's oldest subflow, and a peer whose subflow there has ended before it hears of it goes on counting it. What
// it cannot find out it leaves.
func Tidy() {
	endpoints, err := mptcp.Endpoints()
	if err != nil {
		return
	}
	endpoints = slices.DeleteFunc(endpoints, func(e mptcp.Endpoint) bool { return !again(e) })
	if len(endpoints) == 0 {
		return
	}
	connections, err := mptcp.Connections()
	if err != nil {
		return
	}
	for _, e := range unneeded(endpoints, connections) {
		_ = mptcp.DelEndpoint(e.ID, e.Addr)
	}
}

// unneeded are those of endpoints, each with a port, that may all go: no connection depends on one when those before it
// have.
func unneeded(endpoints []mptcp.Endpoint, connections []mptcp.Connection) (out []mptcp.Endpoint) {
	var gone []netip.AddrPort
	for _, e := range endpoints {
		if !slices.ContainsFunc(connections, func(c mptcp.Connection) bool { return depends(c, e, gone) }) {
			out, gone = append(out, e), append(gone, netip.AddrPortFrom(e.Addr, e.Port))
		}
	}
	return out
}

// depends says whether c has a working subflow on the address and port of e, and from the same address of its client
// none by another port that is not gone. From another address there may be one that leads to where the client was: it stands
// for as long as nothing is sent there.
func depends(c mptcp.Connection, e mptcp.Endpoint, gone []netip.AddrPort) bool {
	by, beside := map[netip.Addr]bool{}, map[netip.Addr]bool{}
	for _, s := range c.Subflows {
		switch {
		case s.State != mptcp.StateEstablished || s.Local.Addr() != e.Addr || slices.Contains(gone, s.Local):
		case s.Local.Port() == e.Port:
			by[s.Remote.Addr()] = true
		default:
			beside[s.Remote.Addr()] = true
		}
	}
	for peer := range by {
		if !beside[peer] {
			return true
		}
	}
	return false
}

// The kernel listens for late joins on one of these ports: nudgePort plus the
// endpoint's id, or, where that is in use, a multiple of portStep further on.
const (
	nudgePort  = 61000
	portStep   = 256
	nudgeTries = 8
)

// again says whether an endpoint is of addWithPort, whoever called it: a wait that was cut short, or a program that was
// started again since, tells nobody of it.
func again(e mptcp.Endpoint) bool {
	over := int(e.Port) - nudgePort - int(e.ID)
	return e.Flags == mptcp.FlagSignal && over >= 0 && over%portStep == 0 && over/portStep < nudgeTries
}

func addWithPort(e mptcp.Endpoint) (err error) {
	for try := range uint16(nudgeTries) {
		e.Port = nudgePort + uint16(e.ID) + portStep*try
		if err = mptcp.AddEndpoint(e); err == nil {
			return nil
		}
	}
	return err
}

// behindIn says whether somebody is behind whose client is known by an address of the family of addr: a connection that
// began by IPv6 may have gone on by IPv4.
func (w *watch) behindIn(addr netip.Addr) bool {
	for _, c := range w.behind {
		if reaches(guest.AwaitJoin{Addrs: []netip.Addr{addr}}, c) {
			return true
		}
	}
	return false
}
