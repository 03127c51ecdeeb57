package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"godwit/agent/api"
	"godwit/agent/care"
	"godwit/agent/fence"
	"godwit/agent/guests"
	"godwit/agent/limits"
	"godwit/agent/peer"
	"godwit/agent/talk"
	"godwit/migration"
)

// A guest that has landed may be taken back by the host that it came from, for as long as
// that has not heard of it: a person, or a fence, says that this host is off. They say nothing
// of a third host. So the guest is not moved on before; see docs/ownership.md.

const (
	unheardSoon  = 100 * time.Millisecond // between questions while a migration waits for the answer, and at first
	unheardEvery = 5 * time.Second        // after a while
)

// mayTakeBack says why the source may still take the guest, which is here by epoch, back; nil: it cannot.
func mayTakeBack(u care.Unheard, answer talk.CourseAnswer, err error, epoch uint64) error {
	switch {
	case err != nil:
		return fmt.Errorf("%s, from which it came, does not answer whether it has heard that the guest runs here: %w", u.From, err)
	case answer.Epoch > epoch:
		return fmt.Errorf("%s, from which it came, %w: it has taken it back", u.From, errSourceSays)
	case answer.Heard, answer.Course == talk.CourseUnknown, answer.Course == talk.CourseOver && answer.Released:
		return nil
	}
	return fmt.Errorf("%s, from which it came, %w: it has not heard yet that the guest runs here", u.From, errSourceSays)
}

// errSourceSays is of a source that answers: nobody can vouch that it is off.
var errSourceSays = errors.New("answers")

// heard asks the host that a guest came from, once, and keeps that it has heard of the landing.
// The error says why that is not known.
func (a *Agent) heard(ctx context.Context, g *guests.Guest) error {
	h := g.Held()
	if h.Unheard == nil {
		return nil
	}
	answer, err := a.courseOf(ctx, *h.Unheard)
	if err := mayTakeBack(*h.Unheard, answer, err, h.Epoch); err != nil {
		return err
	}
	return a.forgetUnheard(g)
}

// courseOf asks the host that a guest came from what became of the migration there.
func (a *Agent) courseOf(ctx context.Context, u care.Unheard) (answer talk.CourseAnswer, err error) {
	link, _, err := a.link(u.From)
	if err != nil {
		return answer, err
	}
	ctx, cancel := limits.Heard.On(ctx)
	defer cancel()
	err = limits.Says(ctx, link.Call(ctx, http.MethodGet, urlOf(u.Migration, "course"), nil, &answer))
	return answer, err
}

func (a *Agent) forgetUnheard(g *guests.Guest) error {
	if !a.guests.Has(g) { // it ended meanwhile
		return nil
	}
	g.Remember(func(h *care.Held) { h.Unheard = nil })
	return a.guests.SaveIfHere(g)
}

// awaitHeard asks on for limits.Heard: a source hears of a landing soon after it. The error, of
// code busy, says what a person can do.
func (a *Agent) awaitHeard(ctx context.Context, g *guests.Guest) error {
	ctx, cancel := limits.Heard.On(ctx)
	defer cancel()
	var last error
	for {
		err := a.heard(ctx, g)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err // a try that was cut short says less than the one before it
		}
		if sleep(ctx, unheardSoon) {
			continue
		}
		u := g.Held().Unheard
		if u == nil { // another was answered meanwhile (keepAsking), or a person has given a word
			return nil
		}
		return &migration.Problem{Code: migration.CodeBusy, Text: fmt.Sprintf(
			"migrate guest %s: %v; it could be taken back there, so it is not moved on: bring %s or a path to it back, or say godwit recover %s --keep%s",
			g.Name(), last, u.From, g.Name(), a.onceOff(u.From))}
	}
}

// keepAsking asks the source of a guest that has landed until it has heard, or the guest is gone.
func (a *Agent) keepAsking(g *guests.Guest) {
	if g == nil || g.Held().Unheard == nil {
		return
	}
	a.actors.Go(func() {
		for pause := unheardSoon; ; pause = min(2*pause, unheardEvery) {
			if !a.guests.Has(g) || a.heard(a.ctx, g) == nil || !sleep(a.ctx, pause) {
				return
			}
		}
	})
}

// resumeAsking goes on asking for guests that an earlier agent received, also for those that have ended.
func (a *Agent) resumeAsking() {
	ended, err := a.guests.UnheardEnded()
	if err != nil {
		a.log.Error("guests that have ended", "error", err)
	}
	for _, e := range ended {
		a.askOfEnded(e.Description.Name, e.Epoch, *e.Unheard)
	}
	for _, g := range a.guests.All() {
		if !a.isComing(g.Name()) { // else when it has landed
			a.keepAsking(g)
		}
	}
}

// unheardDoubts are guests here, of all or by migration or name, of which it is not known
// whether their source has heard that they landed.
func (a *Agent) unheardDoubts(ctx context.Context, about string) []api.Doubt {
	var out []api.Doubt
	silent := map[string]error{} // by host: not asked for each guest
	for _, g := range a.guests.All() {
		h := g.Held()
		if h.Unheard == nil || g.Migration() != "" || about != "" && about != h.Unheard.Migration && about != g.Name() {
			continue
		}
		err := silent[h.Unheard.From]
		if err == nil {
			err = a.heard(ctx, g)
		}
		answers := errors.Is(err, errSourceSays)
		if err == nil || answers && about == "" {
			continue // or ends by itself
		}
		if !answers {
			silent[h.Unheard.From] = err
		}
		out = append(out, api.Doubt{
			ID: h.Unheard.Migration, Guest: g.Name(), Side: "destination", Peer: h.Unheard.From, Epoch: h.Epoch,
			Here: "the guest has landed here; it is not moved on", There: err.Error(),
			Risk: fmt.Sprintf("if it is kept here and moved on, and %s takes it back nevertheless, it runs twice", h.Unheard.From),
			Ways: []string{
				"bring " + h.Unheard.From + " or a path to it back: that ends this by itself",
				"godwit recover " + h.Unheard.Migration + " --keep" + a.onceOff(h.Unheard.From)},
		})
	}
	return out
}

// keepGuest is a person's word that the host a landed guest came from cannot take it back.
func (a *Agent) keepGuest(ctx context.Context, id string, word api.TakeBack) error {
	refuse := func(format string, args ...any) error {
		return &migration.Problem{Code: migration.CodeUsage, Text: "keep " + id + ": " + fmt.Sprintf(format, args...)}
	}
	for _, g := range a.guests.All() {
		h := g.Held()
		if h.Unheard == nil || h.Unheard.Migration != id {
			continue
		}
		err := a.heard(ctx, g)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, errSourceSays):
			return refuse("%v", err)
		case word.Fenced:
		case a.config.Fence != "":
			if err := fence.Prove(ctx, a.config.Fence, fence.Ask{Migration: id, Guest: g.Name(), Host: h.Unheard.From, Epoch: h.Epoch}); err != nil {
				return refuse("%v; nothing was changed", err)
			}
		default:
			return refuse("%v; switch %s, or the guest's QEMU there, off, then say --fenced; or configure a fence", err, h.Unheard.From)
		}
		a.log.Warn("a guest is kept, though its source has not said that it heard of it", "guest", g.Name(), "source", h.Unheard.From, "migration", id)
		return a.forgetUnheard(g)
	}
	return refuse("no guest on host %s came by it, or its source has heard of it", a.config.Host)
}

func (a *Agent) apiKeepGuest(r *http.Request) (any, error) {
	var word api.TakeBack
	if err := peer.DecodeKnown(r, &word); err != nil {
		return nil, err
	}
	return nil, a.keepGuest(r.Context(), r.PathValue("id"), word)
}
