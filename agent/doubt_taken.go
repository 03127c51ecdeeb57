package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"godwit/agent/limits"
	"godwit/agent/peer"
	"godwit/agent/statefile"
	"godwit/agent/talk"
	"godwit/migration"
)

// Taken is a guest that was taken back from a host which has not said yet that it knows.
type Taken struct {
	Migration string    `json:"migration"`
	Host      string    `json:"host"`
	Undo      talk.Undo `json:"undo"`

	told *atomic.Bool // the other host knows; nil: of a file that there is already
}

// write keeps it for later agents, unless the other host has been told by then.
func (t Taken) write(a *Agent) error {
	err := statefile.Write(t.path(a), t)
	if t.told != nil && t.told.Load() {
		return statefile.Remove(t.path(a))
	}
	return err
}

func (t Taken) path(a *Agent) string { return a.config.StatePath("taken", t.Migration+".json") }

// takenEvery is between tries to reach a host that a guest was taken back from.
const takenEvery = 5 * time.Second

// tellTaken tells a host, when it comes back, that its right has ended. It goes on for
// as long as that takes, also under the next agents.
func (a *Agent) tellTaken(t Taken) {
	link, _, err := a.link(t.Host)
	if err != nil {
		a.log.Warn("nobody tells that a guest was taken back", "migration", t.Migration, "error", err, "cure", "name "+t.Host+" under peers again, or, where it is gone for good, remove "+t.path(a))
		return
	}
	for {
		ask, cancel := limits.TellTaken.On(a.ctx)
		var answer talk.ReleaseAnswer
		err := link.Call(ask, http.MethodPost, urlOf(t.Migration, "abort"), t.Undo, &answer)
		cancel()
		if err == nil && answer.State == "declined" {
			a.log.Info("the other host knows that the guest was taken back", "migration", t.Migration, "host", t.Host)
			if t.told != nil {
				t.told.Store(true) // before it is forgotten: who could not write it down tries again
			}
			if err := statefile.Remove(t.path(a)); err != nil {
				a.log.Warn("forget that it was taken back", "migration", t.Migration, "error", err)
			}
			return
		}
		if !sleep(a.ctx, takenEvery) {
			return
		}
	}
}

// resumeTaken goes on telling what an earlier agent could not tell.
func (a *Agent) resumeTaken() {
	paths, err := statefile.Files(a.config.StatePath("taken"))
	if err != nil {
		a.log.Error("guests that were taken back", "error", err)
	}
	for _, path := range paths {
		var t Taken
		if err := statefile.Read(path, &t); err != nil {
			a.log.Error("guest that was taken back", "error", err)
			continue
		}
		a.actors.Go(func() { a.tellTaken(t) })
	}
}

// supersede ends a guest that landed here when its source has since taken it back: a
// later right ends what runs by an earlier one. It answers that nothing is left here.
func (a *Agent) supersede(r *http.Request, ask talk.Undo) (any, error) {
	declined := talk.ReleaseAnswer{State: "declined"}
	if err := a.leftAlone(r.PathValue("id")); err != nil {
		return nil, err
	}
	rec, err := a.records.Kept(r.PathValue("id"))
	if errors.Is(err, statefile.ErrUnread) {
		return nil, err // the guest may have landed here by it
	}
	if err != nil {
		return declined, nil //nolint:nilerr // nothing is here to undo
	}
	rep := rec.Snapshot()
	if rep.From != peer.Caller(r) || rep.Outcome != migration.Completed || ask.Epoch <= rep.Epoch {
		return declined, nil
	}
	g, err := a.guests.Find(rep.Guest)
	if err != nil {
		if err := a.maybeHere(rep.Guest); err != nil {
			return nil, err // and the source tells it again
		}
		if err := a.endedElsewhere(rep.Guest, rep.ID); err != nil {
			return nil, err
		}
		return declined, nil
	}
	if !g.Held().StaysBy(rep.ID, rep.Epoch) { // it came back by another right, or is another of its name
		return declined, nil
	}
	if err := a.guests.TakeHere(g, "taken back by "+rep.From); err != nil {
		return nil, err
	}
	a.log.Warn("guest ended: its source took it back; its disks here are kept", "guest", rep.Guest, "source", rep.From, "epoch", ask.Epoch, "here", rep.Epoch)
	if err := a.stopGuest(context.WithoutCancel(r.Context()), g); err != nil {
		return nil, errors.Join(fmt.Errorf("end guest %s, which was taken back", rep.Guest), err)
	}
	return declined, nil
}

// maybeHere says why a guest that is not under care may run here nevertheless: what is remembered of
// it cannot be read, its QEMU does not answer yet, or it is being started, received or waited for.
func (a *Agent) maybeHere(name string) error {
	if err := cmp.Or(a.guests.Readable(name), a.isSilent(name)); err != nil {
		return err
	}
	if a.guests.Expects(name) {
		return &migration.Problem{Code: migration.CodeBusy, Text: fmt.Sprintf("guest %s: whether it runs on host %s is not known yet", name, a.config.Host)}
	}
	return nil
}

// Check says what is wrong with a note that a guest was taken back.
func (t *Taken) Check() error {
	if !migration.ValidID(t.Migration) {
		return fmt.Errorf("migration id %.100q: not one", t.Migration)
	}
	return nil
}
