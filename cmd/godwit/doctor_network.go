package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"godwit/agent/addresses"
	"godwit/agent/config"
)

// network looks at what guests are attached to here.
func network(ctx context.Context, n config.Network) []finding {
	var out []finding
	missing := n.Missing()
	for _, what := range missing {
		out = append(out, lack("guests' bridge", what))
	}
	for _, itself := range n.Itself() {
		out = append(out, lack("guests' router", itself))
	}
	if len(out) == 0 {
		out = append(out, fine("guests' bridge", fmt.Sprintf("%s, with %s as its port", n.Bridge, n.LAN)))
	}
	for _, silent := range n.Listens() {
		out = append(out, note("guests' bridge", silent))
	}
	if len(missing) == 0 { // else nobody can be asked
		out = append(out, routers(askTwice(ctx, func() []addresses.Router { return addresses.AskRouters(ctx, n) }))...)
	}
	return out
}

// askTwice asks again where a router is surely missed: what has just come up may lose what is sent first.
func askTwice(ctx context.Context, ask func() []addresses.Router) []addresses.Router {
	all := ask()
	if !slices.ContainsFunc(all, func(r addresses.Router) bool { return r.Sure }) {
		return all
	}
	select {
	case <-time.After(time.Second):
		return ask()
	case <-ctx.Done():
		return all
	}
}

// routers is what asking for those of guests shows: without theirs no guest's connection gets anywhere.
func routers(all []addresses.Router) (out []finding) {
	const what = "guests' router"
	for _, r := range all {
		switch {
		case r.NotAsked != nil && geteuid() != 0:
			out = append(out, note(what, r.Addr.String()+": not asked for: only root can"))
		case r.NotAsked != nil:
			out = append(out, note(what, r.NotAsked.Error()))
		case r.Silent == "":
			out = append(out, fine(what, r.Addr.String()+" answers"))
		case r.Sure:
			out = append(out, lack(what, r.Silent))
		default:
			out = append(out, note(what, r.Silent))
		}
	}
	return out
}
