package agent

import (
	"context"

	"godwit/agent/addresses"
	"godwit/migration"
)

// beginRouters asks, beside the rest of a check, who has the routers of guests here. What cannot be asked is not told
// of: a check that gives an address has asked the same bridge for that, and says why it could not.
func (a *Agent) beginRouters(ctx context.Context) <-chan []addresses.Router {
	answer := make(chan []addresses.Router, 1)
	go func() { answer <- addresses.AskRouters(ctx, a.config.Network) }()
	return answer
}

// noteSilent says for which of a guest's next addresses nobody answers as their router. It is no refusal: some routers
// answer nobody who asks like this, and a guest may come before its router is up.
func noteSilent(routers []addresses.Router, next []migration.Address) (notes []string) {
	for _, r := range routers {
		for _, addr := range next {
			if r.Silent != "" && addr.Gateway == r.Addr {
				notes = append(notes, r.Silent+"; while it is not there, the next address "+addr.Prefix.Addr().String()+" is reached from its own subnet alone")
			}
		}
	}
	return notes
}
