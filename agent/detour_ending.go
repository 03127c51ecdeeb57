package agent

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"godwit/agent/limits"
	"godwit/agent/record"
	"godwit/agent/statefile"
	"godwit/migration"
)

// A detour that was for good is ended at its other end by nobody but the guest's host: until then the guest's home
// sends its address to where it is not, and gives it to nobody. Whom that host has not reached is told on, also by the
// agents to come; so is who leads nothing to the guest any more before a lease is over, and may be switched off once it
// has heard.

// ending is the end of such a detour, of which its other end has not heard.
type ending struct {
	Detour string      `json:"detour"`
	Peer   string      `json:"peer"`
	Ended  EndedDetour `json:"ended"`
	Note   string      `json:"note,omitempty"` // of the migration's report, once it has heard
}

// Check says what cannot be meant of one that was read.
func (e *ending) Check() error {
	if !migration.ValidID(migrationOf(e.Detour)) {
		return fmt.Errorf("detour %.100q: its id is not one", e.Detour)
	}
	return nil
}

// path is where it is kept.
func (e ending) path(a *Agent) string { return detourFile(a, "ended", e.Detour) }

// detourFile is a file of a directory in STATE that is of a detour: by its id, or what is made of one that is too long
// for a file's name, as two long names of hosts are in it.
func detourFile(a *Agent, dir, id string) string {
	name := id
	if len(name+".json") > 255 { // NAME_MAX
		name = fmt.Sprintf("%s-%x", migrationOf(name), sha256.Sum256([]byte(name)))
	}
	return a.config.StatePath(dir, name+".json")
}

// endLaterEvery is between tries to end a detour's other end at first; each makes it twice as long, up to
// endLaterRarely.
const endLaterEvery, endLaterRarely = 2 * time.Second, 30 * time.Second

// endLater asks a detour's other end on, beside everything else, for as long as that takes. It is before the detour
// ends here.
func (a *Agent) endLater(e ending) {
	if err := statefile.Write(e.path(a), e); err != nil {
		a.log.Error("keep that a detour has ended", "id", e.Detour, "error", err)
	}
	a.actors.Go(func() { a.tellEnding(e, endLaterEvery) })
}

// tellEnding tells it until it is heard, or refused, first after wait. A host that the configuration does not name any
// more may be named again.
func (a *Agent) tellEnding(e ending, wait time.Duration) {
	if _, _, err := a.link(e.Peer); err != nil {
		a.log.Warn("nobody tells that a detour has ended", "id", e.Detour, "error", err, "cure", "name "+e.Peer+" under peers again, or, where it is gone for good, `godwit doctor --clean`")
		return
	}
	for ; sleep(a.ctx, wait); wait = min(max(2*wait, endLaterEvery), endLaterRarely) {
		if d, here := a.detours.Get(e.Detour); here && !d.NeedsNoTunnel() {
			continue // it has not ended yet, or was made anew
		}
		err := a.askEnding(a.ctx, e)
		if problem := (*migration.Problem)(nil); err != nil && (!errors.As(err, &problem) || problem.Code == migration.CodeInternal) {
			continue
		}
		if err != nil {
			a.log.Warn("the detour's other end is left as it is", "id", e.Detour, "peer", e.Peer, "error", err)
		} else if e.Note != "" {
			a.noteLater(migrationOf(e.Detour), e.Note)
		}
		if err := statefile.Remove(e.path(a)); err != nil {
			a.log.Warn("forget that a detour has ended", "id", e.Detour, "error", err)
		}
		return
	}
}

// noteLater notes something of a migration that has ended, once.
func (a *Agent) noteLater(id, text string) {
	a.records.Amend(id, func(rep *record.Report) {
		if !slices.Contains(rep.Notes, text) {
			rep.Notes = append(rep.Notes, text)
		}
	})
}

func (a *Agent) askEnding(ctx context.Context, e ending) error {
	link, _, err := a.link(e.Peer)
	if err != nil {
		return err
	}
	_, e.Ended.Now, _ = a.told(migrationOf(e.Detour))
	ctx, cancel := limits.EndDetour.On(ctx)
	defer cancel()
	return limits.Says(ctx, link.Call(ctx, http.MethodPost, "/v1/detours/"+e.Detour+"/end", e.Ended, nil))
}

// resumeEndings goes on telling what an earlier agent could not tell.
func (a *Agent) resumeEndings() {
	paths, err := statefile.Files(a.config.StatePath("ended"))
	if err != nil {
		a.log.Error("detours that have ended", "error", err)
	}
	for _, path := range paths {
		var e ending
		if err := statefile.Read(path, &e); err != nil || path != e.path(a) {
			a.log.Error("the end of a detour cannot be read", "file", path, "error", err)
			continue
		}
		a.actors.Go(func() { a.tellEnding(e, 0) })
	}
}
