package agent

import (
	"godwit/agent/api"
	"godwit/agent/guests"
	"godwit/internal/clock"
	"godwit/migration"
)

// A guest that ends by itself where it runs by right, as it powers off, its QEMU is killed, or its host reboots, is not
// under care any more, and no agent starts it by itself: none can know that no other host has it. What is needed to
// start it again is kept for a person's word (guest_again.go), until a guest of its name is under care here again, or
// comes: its disks here may be old from then on. Of one that was let go, or was given up, nothing is kept.

// keepEnded keeps what a guest that has ended here is started again by; its answer, for the log, is how.
func (a *Agent) keepEnded(g *guests.Guest, why string) (how string) {
	if err := a.guests.KeepEnded(g, why, clock.Now()); err != nil {
		a.log.Warn("what a guest that has ended is started again by cannot be kept", "guest", g.Name(), "error", err)
		return "by hand"
	}
	return againBy(g.Name())
}

// againBy is the command that starts a guest again which has ended.
func againBy(guest string) string { return "godwit guest start " + guest }

// endOf is how a guest ended, for people.
func endOf(g *guests.Guest) string {
	if m := g.Machine(); m != nil && m.Exit().Reason != "" {
		return shutdownWords(m.Exit().Reason)
	}
	return "its QEMU ended"
}

// mayKeepEnded says whether a guest that ended while it was to leave had never been let go: of one that was, or that
// is lost, disks elsewhere are newer.
func mayKeepEnded(s migration.Source) bool {
	switch s.Reached() {
	case migration.Release, migration.AwaitLanding:
		return false
	}
	return s.Outcome != migration.Completed && !s.Lost()
}

// forgetEndedHere forgets what was kept of a guest of that name, as it runs, or may run, elsewhere.
func (a *Agent) forgetEndedHere(guest, why string) error {
	e, err := a.guests.Ended(guest)
	if err == nil {
		a.log.Warn("what was kept of a guest that ended here is removed, its disks are not", "guest", guest, "ended", e.At, "disks", e.Disks, "as", why)
	}
	return a.guests.DropEnded(guest)
}

// endedHere are those that a person can have started again.
func (a *Agent) endedHere() []api.EndedGuest {
	out := []api.EndedGuest{}
	for _, e := range a.guests.AllEnded() {
		out = append(out, api.EndedGuest{Name: e.Held.Description.Name, At: e.At, Why: e.Why, Epoch: e.Held.Epoch, Adopted: e.Adopted(), Again: againBy(e.Held.Description.Name)})
	}
	return out
}

// latestRight is the epoch of the latest right to run a guest of that name that this host knows of; 0: none.
func (a *Agent) latestRight(guest string) uint64 {
	epoch := uint64(0)
	if g, err := a.guests.Find(guest); err == nil {
		epoch = g.Held().Epoch
	}
	for _, r := range a.records.Reports() {
		if r.Guest == guest && r.Outcome == migration.Completed {
			epoch = max(epoch, r.Epoch)
		}
	}
	return epoch
}
