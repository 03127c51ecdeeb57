package agent

import (
	"context"
	"time"

	"godwit/agent/limits"
	"godwit/internal/oneline"
	"godwit/migration"
)

// hear has a person's word that the guest is taken back come into force, and waits until the act is on the disk: the
// epoch is another then. A word that is answered with "could not" does not come into force later: by then the
// destination may run again.
func (m *outgoing) hear(ctx context.Context, in migration.Input, epoch uint64, refuse func(format string, args ...any) error) error {
	select {
	case m.inbox <- in:
	case <-ctx.Done():
		return ctx.Err()
	}
	until := time.Now().Add(limits.Word.For)
	for m.snapshot().Epoch == epoch {
		if why := m.dropped(in); why != "" {
			return refuse("%s; nothing was changed, see `godwit watch %s`", why, m.plan.ID)
		}
		if !time.Now().After(until) && sleep(ctx, 10*time.Millisecond) {
			continue
		}
		if m.settleWord(in, false) {
			return refuse("its journal takes long, and it may come into force yet: keep %s off until `godwit watch %s` tells; see the agent's log", m.plan.To, m.plan.ID)
		}
		return refuse("the migration was busy with something else, or the destination answered first; nothing was changed, see `godwit watch %s`", m.plan.ID)
	}
	return nil
}

// heeds says whether an input counts: a person's word does not where who gave it was told that it was not taken.
func (m *outgoing) heeds(in migration.Input) bool {
	return in.Kind != migration.TakeBack || m.settleWord(in, true)
}

// settleWord settles whether a person's word is taken, once, and says what it was settled to.
func (m *outgoing) settleWord(in migration.Input, taken bool) bool {
	settled, _ := m.words.LoadOrStore(in.Problem, taken) // each has a Problem of its own
	return settled == true
}

// notTaken is why a word that was taken came to nothing.
type notTaken string

// drop has a person whose word was heeded know that it came to nothing.
func (m *outgoing) drop(in migration.Input, why string) {
	if in.Kind == migration.TakeBack {
		m.words.Store(in.Problem, notTaken(why))
	}
}

// tooLateToTake is why a word came to nothing when nobody waited for the destination any more.
const tooLateToTake = "the destination answered first, or it is being undone"

// whyNot is why a word came to nothing that the machine did not take for err.
func (m *outgoing) whyNot(err error) string {
	if at := m.state.Doing(); at != migration.Release && at != migration.AwaitLanding {
		return tooLateToTake
	}
	return "it could not be written down: " + oneline.Of(err.Error())
}

// dropped is why a person's word came to nothing; "": it may come into force, or did.
func (m *outgoing) dropped(in migration.Input) string {
	settled, _ := m.words.Load(in.Problem)
	why, _ := settled.(notTaken)
	return string(why)
}
