package agent

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"godwit/agent/detour"
	"godwit/agent/statefile"
	"godwit/migration"
)

// A detour is gone from the disk before it is told that nothing takes its tunnel any more. An agent that is killed
// between the two would be the last to know of it: so it is written down first whose end is to be told.

// leaseEnd is the end of a leased detour that is not told yet.
type leaseEnd struct {
	Detour string `json:"detour"`
	Guest  string `json:"guest"`
}

// Check says what cannot be meant of one that was read.
func (e *leaseEnd) Check() error {
	if !migration.ValidID(migrationOf(e.Detour)) {
		return fmt.Errorf("detour %.100q: its id is not one", e.Detour)
	}
	return nil
}

func (e leaseEnd) path(a *Agent) string { return detourFile(a, "lease-ended", e.Detour) }

// willEnd is before a detour is changed, or ends, so that nothing takes its tunnel any more; tunnelEnded is after that.
func (a *Agent) willEnd(d detour.Detour) {
	if rep, known := a.records.Report(migrationOf(d.ID)); !d.Leased || known && rep.TunnelDown != 0 { // nobody is told, or was
		return
	}
	e := leaseEnd{Detour: d.ID, Guest: d.Guest}
	if err := statefile.Write(e.path(a), e); err != nil {
		a.log.Warn("keep that a lease ends", "id", d.ID, "error", err, "consequence", "nobody is told where this agent is killed just now")
	}
}

// endTold is that the end of a detour's lease has been told, or is none.
func (a *Agent) endTold(d detour.Detour) {
	if err := statefile.Remove(leaseEnd{Detour: d.ID}.path(a)); err != nil {
		a.log.Warn("forget that a lease has ended", "id", d.ID, "error", err)
	}
}

// resumeLeaseEnds finds the leases that had ended as an earlier agent was killed: before any ends anew, and before
// anybody can ask to hear of it. tellLeaseEnds tells of them.
func (a *Agent) resumeLeaseEnds() {
	paths, err := statefile.Files(a.config.StatePath("lease-ended"))
	if err != nil {
		a.log.Error("leases that have ended", "error", err)
	}
	for _, path := range paths {
		var e leaseEnd
		if err := statefile.Read(path, &e); err != nil || path != e.path(a) {
			a.log.Error("the end of a lease cannot be read", "file", path, "error", err)
			continue
		}
		ended := detour.Detour{ID: e.Detour, Guest: e.Guest, Leased: true}
		if d, here := a.detours.Get(e.Detour); here && !d.NeedsNoTunnel() || a.needsTunnelBeside(ended) {
			a.endTold(ended) // it had not come to that
			continue
		}
		a.untoldEnds = append(a.untoldEnds, ended)
	}
}

// tellLeaseEnds tells of what resumeLeaseEnds found, at the first look at detours: who was there may be there again.
// One that has been told of since, as what was at home beside it ended, is not told again.
func (a *Agent) tellLeaseEnds() {
	for _, d := range a.untoldEnds {
		if _, err := statFile(leaseEnd{Detour: d.ID}.path(a)); !errors.Is(err, os.ErrNotExist) {
			a.tellTunnelEnded(d)
			a.endTold(d)
		}
	}
	a.untoldEnds = nil
}

// needsTunnelBeside says whether another of the ways of a detour's migration takes a tunnel, on a lease.
func (a *Agent) needsTunnelBeside(d detour.Detour) bool {
	return slices.ContainsFunc(a.detours.List(d.Guest), func(o detour.Detour) bool {
		return o.ID != d.ID && migrationOf(o.ID) == migrationOf(d.ID) && o.Leased && !o.NeedsNoTunnel()
	})
}
