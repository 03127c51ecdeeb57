package agent

import (
	"fmt"
	"net/http"

	"godwit/agent/guests"
	"godwit/internal/clock"
	"godwit/migration"
)

// A guest that ends by itself where it runs by right, as it powers off, its QEMU is killed, or its host reboots, is
// not under care any more, and no agent starts it again: none can know that no other host has it, or newer disks of it.
// What it was is kept, for a person who does, unless a migration of it was under way: its disks may be elsewhere then.

// forgetEndedGuest ends the care of a guest that has ended while no migration of it was under way.
func (a *Agent) forgetEndedGuest(g *guests.Guest, why string) {
	kept, err := a.guests.ForgetEnded(g, why, clock.Now())
	if err != nil {
		a.log.Warn("forget guest", "guest", g.Name(), "error", err)
	}
	if kept {
		a.log.Info("no agent starts a guest again that has ended; what it was is kept", "guest", g.Name(), "see", "godwit guest describe --ended "+g.Name())
	}
}

// endOf is how a guest ended, for people.
func endOf(g *guests.Guest) string {
	if m := g.Machine(); m != nil && m.Exit().Reason != "" {
		return shutdownWords(m.Exit().Reason)
	}
	return "its QEMU ended"
}

// apiDropEnded forgets what is kept of a guest that has ended here.
func (a *Agent) apiDropEnded(r *http.Request) (any, error) {
	name := r.PathValue("name")
	was, err := a.guests.DropEnded(name)
	if err == nil && !was {
		err = &migration.Problem{Code: migration.CodeUnknownGuest, Text: fmt.Sprintf("guest %.64q: none of that name has ended here; see `godwit guest ls`", name)}
	}
	if err == nil {
		a.log.Info("what was kept of a guest that has ended is forgotten, by a person's word", "guest", name)
	}
	return nil, err
}

// arrives forgets a guest of that name that ended here, as one comes: what is kept is old from then on, whatever
// becomes of the migration.
func (a *Agent) arrives(guest string) error {
	was, err := a.guests.DropEnded(guest)
	if was {
		a.log.Info("what was kept of a guest that ended here is forgotten, as one of its name comes; its disks here stay", "guest", guest)
	}
	return err
}
