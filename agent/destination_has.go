package agent

import (
	"context"
	"time"

	"godwit/agent/limits"
	"godwit/agent/talk"
	"godwit/agent/visits"
)

// beginHas finds out, beside the rest of a check, which pages of an offer's sample this host has already: what it kept
// of the guest's earlier visit has them where they were, and files of its image may have them anywhere. These are those
// that it will offer (visits.Elsewhere). nil: no sample came, or nothing is kept here.
func (a *Agent) beginHas(ctx context.Context, offer talk.Offer) <-chan []bool {
	answer, found := make(chan []bool, 1), make(chan []bool, 1)
	if offer.Sample == nil || a.config.KeepMemory == 0 {
		answer <- nil
		return answer
	}
	ctx, cancel := limits.Has.On(ctx)
	go func() {
		defer cancel()
		found <- a.whichHere(ctx, offer)
	}()
	go func() {
		select {
		case all := <-found:
			answer <- all
		case <-time.After(limits.Has.For + hasGrace):
			answer <- nil
		}
	}()
	return answer
}

// hasGrace is for how long after its limit the search may go on with what it is at; then its storage hangs, and nobody
// waits for that.
const hasGrace = 500 * time.Millisecond

func (a *Agent) whichHere(ctx context.Context, offer talk.Offer) []bool {
	out := make([]bool, len(offer.Sample.Pages))
	kept, images := visits.Elsewhere(a.config, offer.Plan.Guest, offer.Description.Image)
	if kept != nil {
		offer.Sample.InPlace(ctx, kept, out)
		kept.Close() //nolint:errcheck // it was read only
	}
	for _, file := range images {
		offer.Sample.Anywhere(ctx, file, out)
		file.Close() //nolint:errcheck // as above
	}
	return out
}
