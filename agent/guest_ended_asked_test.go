package agent

import (
	"sync/atomic"
	"testing"

	"godwit/agent/care"
	"godwit/agent/guests"
	"godwit/agent/talk"
)

// TestOneAsksOfTheEnded: one asks the source of a guest that has ended here, however often its end is told; and one does
// for as long as its answer is owed, also where that is owed anew just as it was given.
func TestOneAsksOfTheEnded(t *testing.T) {
	var asked atomic.Int32
	answers := make(chan struct{})
	a, g := landedFrom(t, func() talk.CourseAnswer {
		asked.Add(1)
		<-answers
		return talk.CourseAnswer{Course: talk.CourseOver, Released: true, Epoch: 3}
	})
	u := *g.Held().Unheard
	g.Remember(func(h *care.Held) { h.Description.Start = []string{"qemu"} })
	for range 5 {
		endsAgain(a, g, u)
	}
	close(answers)
	a.actors.Wait()
	if n := asked.Load(); n != 1 {
		t.Errorf("its source was asked %d times at once", n)
	}
	for range 30 {
		endsAgain(a, g, u)
	}
	a.actors.Wait()
	if all, err := a.guests.Ended(); err != nil || len(all) != 1 || all[0].Unheard != nil || len(a.endedAsked.of) > 0 {
		t.Errorf("kept %+v, %v; asked of %v", all, err, a.endedAsked.of)
	}
}

// endsAgain tells the agent that g has ended, as its source may have it.
func endsAgain(a *Agent, g *guests.Guest, u care.Unheard) {
	g.Remember(func(h *care.Held) { h.Unheard = &u })
	a.guests.ExpectAgain(g)
	a.forgetEndedGuest(g, "it powered off")
	a.guests.Settled(g)
}
