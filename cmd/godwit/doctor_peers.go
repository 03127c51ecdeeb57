package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"godwit/agent/config"
	"godwit/agent/limits"
	"godwit/agent/peer"
	"godwit/internal/oneline"
	"godwit/netstate"
)

// Bounds of asking other hosts' agents: so many paths at once, and all of them for no longer than that.
const (
	asksAtOnce = 32
	askPeers   = 6 * time.Second
)

// A tried path is a pair of uplinks, here and at another host, and what asking the agent there over it came to.
type triedPath struct {
	host   string
	path   peer.Path
	device string // of the uplink here, as the configuration names it; "": it does not
	leaves string // by which packets of the path leave; "": not known
	err    error
}

var errNotTried = errors.New("not tried")

// peers asks the agents of other hosts, over each pair of uplinks, side by side. What does not answer is a note: nobody
// here knows whether it is to be up yet, nor which uplinks are to reach each other.
func peers(ctx context.Context, c *config.Config, certificate finding) []finding {
	switch {
	case len(c.Peers) == 0:
		return []finding{note("peers", "none is named, and no guest can move to or from here")}
	case !certificate.OK:
		return []finding{note("peers", "not asked: the certificate comes first")}
	}
	id, err := peer.LoadIdentity(c.TLS.CA, c.TLS.Cert, c.TLS.Key)
	if err != nil {
		return []finding{lack("peers", err.Error())}
	}
	var out []finding
	answers := map[string]bool{}
	all := askAll(ctx, c, id)
	for _, t := range all {
		answers[t.host] = answers[t.host] || t.err == nil
	}
	for _, n := range c.Peers {
		if len(c.Paths(n)) == 0 {
			out = append(out, note("host "+n.Host, "no uplink of it that peers names is of the same family of addresses as one here: there is no path"))
		}
	}
	for _, t := range onTheirWay(all) {
		out = append(out, t.finding(c, answers[t.host]))
	}
	if slices.ContainsFunc(all, func(t triedPath) bool { return t.err == nil }) {
		out = append(out, note("peers", "UDP and tunnels were not tried: `godwit plan GUEST HOST` does"))
	}
	return out
}

// onTheirWay forgets by which device packets of a path leave that does not answer, where another path from that uplink
// to that host has its way by it: an uplink of a VPN leads to the VPN's addresses alone, and a rule changes nothing.
func onTheirWay(all []triedPath) []triedPath {
	out := slices.Clone(all)
	for i, t := range all {
		if t.err != nil && slices.ContainsFunc(all, func(o triedPath) bool {
			return o.host == t.host && o.path.Local == t.path.Local && o.leaves == o.device
		}) {
			out[i].leaves = ""
		}
	}
	return out
}

// askAll tries each path to each peer.
func askAll(ctx context.Context, c *config.Config, id *peer.Identity) []triedPath {
	ctx, cancel := context.WithTimeout(ctx, askPeers)
	defer cancel()
	var all []triedPath
	for _, n := range c.Peers {
		for _, p := range c.Paths(n) {
			all = append(all, triedPath{host: n.Host, path: p, err: errNotTried})
		}
	}
	places := make(chan struct{}, asksAtOnce)
	var asking sync.WaitGroup
	for i := range all {
		asking.Go(func() {
			t := &all[i]
			for _, u := range c.Uplinks {
				if len(c.Uplinks) > 1 && u.Address == t.path.Local {
					t.device, t.leaves = u.Device, netstate.LeavesBy(t.path.Local, t.path.Remote)
				}
			}
			select {
			case places <- struct{}{}:
				t.err = askOver(ctx, id, c.Port, t.host, t.path)
				<-places
			case <-ctx.Done():
			}
		})
	}
	asking.Wait()
	return all
}

// askOver says why another agent does not answer over a path; nil where it does, whatever it says. Whether it believes
// this host is seen by a call alone.
func askOver(ctx context.Context, id *peer.Identity, port uint16, host string, p peer.Path) error {
	ctx, cancel := limits.Presence.On(ctx)
	defer cancel()
	link := peer.NewLink(id, host, port, []peer.Path{p})
	defer link.Close()
	if err := link.Reaches(ctx, p); err != nil {
		return err
	}
	var silent *peer.Unreachable
	if errors.As(link.Call(ctx, http.MethodGet, "/v1/host", nil, nil), &silent) {
		return silent.Cause // what to look at is said here
	}
	return nil
}

// finding is what a person is told; others: the host answers, over this path or another.
func (t triedPath) finding(c *config.Config, others bool) finding {
	what, of := "host "+t.host, fmt.Sprintf("path %s (%s to %s): ", t.path.Name, t.path.Local, t.path.Remote)
	var astray string
	if t.device != "" && t.leaves != "" && t.leaves != t.device {
		astray = fmt.Sprintf("; its packets leave by %s, not by %s: `ip rule add from %s lookup N`, with the routes of %[2]s in a table N (docs/agent.md, Two hosts)", t.leaves, t.device, t.path.Local)
	}
	there := fmt.Sprintf("%s:%d", t.path.Remote, c.Port)
	switch {
	case t.err == nil && astray != "":
		return note(what, of+"answers"+astray)
	case t.err == nil:
		return fine(what, of+"answers")
	case errors.Is(t.err, errNotTried):
		return note(what, of+"not tried, as others took their time")
	case (&peer.Unreachable{Cause: t.err}).Disbelieved() && others:
		return note(what, of+reason(t.err)+", and another path answers: is "+t.path.Remote.String()+" an address of that host?")
	case (&peer.Unreachable{Cause: t.err}).Disbelieved():
		return lack(what, of+reason(t.err)+"; are both hosts' certificates of this fleet, not over, and their clocks right? `godwit doctor` there says it")
	case errors.Is(t.err, syscall.EADDRNOTAVAIL):
		return note(what, of+"not tried: this host has no address "+t.path.Local.String())
	case errors.Is(t.err, syscall.ECONNREFUSED):
		return note(what, of+there+": connection refused; its agent may not run yet")
	case others:
		return note(what, of+reason(t.err)+", and another path answers; where these two uplinks are not to reach each other, that is well"+astray)
	}
	return note(what, of+fmt.Sprintf("no answer from %s: %s%s; is that host up, and do TCP and UDP %d pass both ways?", there, reason(t.err), astray, c.Port))
}

// reason is an error of asking another agent, in short.
func reason(err error) string {
	var why syscall.Errno
	var told *net.OpError
	switch {
	case errors.As(err, &why):
		return why.Error()
	case errors.Is(err, context.DeadlineExceeded) || os.IsTimeout(err):
		return "nothing comes back"
	case errors.As(err, &told) && told.Op == "remote error": // an alert of TLS, without what net/http says before it
		return oneline.Of(told.Error())
	}
	return oneline.Of(err.Error())
}
