// Package otherway leads a leased tunnel over another pair of uplinks, where the one that it takes carries nothing any
// more, or small packets alone. Through asks a tunnel's process what it hears; what is done to a tunnel is the
// caller's.
package otherway

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"godwit/agent/limits"
	"godwit/agent/peer"
	"godwit/agent/ways"
	"godwit/internal/clock"
	"godwit/netstate/tunnel"
)

const (
	Look   = 5 * time.Second // between looks at whether a leased tunnel carries anything
	rested = time.Minute     // at most, before one that was led over another pair, and stays silent, is led over the next
)

// Passage is what comes through a tunnel.
type Passage int

const (
	Nothing Passage = iota
	NoEcho          // which a firewall may drop alone
	Small           // echoes, and none of full size: what goes in fragments is lost
	Whole
	Untold // the tunnel has no process
)

// Way is what is asked of, and done to, a leased tunnel that may take one of several pairs of uplinks.
type Way struct {
	Pairs   []peer.Path                                             // the best first
	Takes   func() (local, remote netip.Addr, kept bool)            // the pair that it takes now; kept: it is this host's to lead
	Answers func(context.Context) Passage                           // within TryTunnel
	Reaches func(context.Context, peer.Path) (time.Duration, error) // whether its other end's host answers by a pair, after which time
	Lead    func(context.Context, peer.Path) error                  // has both ends take a pair
	Shrink  func(bool)                                              // has connections that begin from now on send small packets alone, or, again, what they like
}

// Keep looks once whether the tunnel answers; if not, it leads it over pairs by which its other end's host does, until
// anything comes through it or it is this host's no more. That which it takes comes first: where both ends are there,
// nothing is changed by that. One that carries small packets alone is left for any other, but not for one that was no
// better.
func (w Way) Keep(ctx context.Context) {
	tried, leads := map[string]int{}, 1 // the pairs that it was led over in vain, or was not to be, by when: from 2 on
	vain := func(p peer.Path) {
		leads++
		tried[p.Name] = leads
	}
	for rest := time.Duration(0); clock.Sleep(ctx, rest); {
		local, remote, kept := w.Takes()
		if !kept {
			return
		}
		passes := w.asks(ctx)
		if passes == Whole || passes == Untold || ctx.Err() != nil {
			return
		}
		taken := func(p peer.Path) bool { return p.Local == local && p.Remote == remote }
		if k := slices.IndexFunc(w.Pairs, taken); k >= 0 && passes == Small {
			vain(w.Pairs[k])
		}
		rank := func(p peer.Path) int {
			if when := tried[p.Name]; when > 0 || taken(p) {
				return when
			}
			return 1
		}
		pairs := slices.SortedStableFunc(slices.Values(w.Pairs), func(a, b peer.Path) int { return rank(a) - rank(b) })
		k, _, _ := ways.FirstThatAnswers(ctx, pairs, w.Reaches)
		if k < 0 {
			continue
		}
		for _, down := range pairs[:k] {
			delete(tried, down.Name) // it may be another once it is back
		}
		wait := min(max(2*rest, Look), rested)
		if passes == Small && tried[pairs[k].Name] > 0 {
			rest = wait
			continue
		}
		refused := w.Lead(ctx, pairs[k]) != nil // such as where the other end's configuration has it as none that carries guests
		if !refused {
			if passes := w.asks(ctx); passes == Whole || passes == NoEcho || passes == Untold {
				return // its host answers by that pair, so if anything comes it is echoes alone that do not pass
			}
			rest = wait // it may be idle, and echoes alone do not pass: what comes is held up by each change
		}
		vain(pairs[k])
	}
}

// asks is Answers; connections that begin from then on send what passes.
func (w Way) asks(ctx context.Context) Passage {
	passes := w.Answers(ctx)
	if passes == Whole || passes == Small {
		w.Shrink(passes == Small)
	}
	return passes
}

// Through says what comes through a tunnel. That one has no process is not the way's fault: whoever keeps its detour
// brings it up again.
func Through(ctx context.Context, through tunnel.Config) Passage {
	asking, cancel := limits.TryTunnel.On(ctx)
	defer cancel()
	t, err := tunnel.Attach(asking, through.Dir, through.Name)
	if err != nil {
		return Untold
	}
	before := t.RxBytes
	switch err = t.Verify(asking); {
	case err == nil:
		return Whole
	case errors.Is(err, tunnel.ErrOnlySmall):
		return Small
	}
	<-asking.Done() // the device itself may have refused the echo, at once
	if err = t.Refresh(context.WithoutCancel(ctx)); err == nil && t.RxBytes > before {
		return NoEcho
	}
	return Nothing
}
