package evacuate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"godwit/agent/api"
	"godwit/agent/record"
	"godwit/internal/clock"
	"godwit/migration"
)

// This file waits for guests with which somebody else does something.

// busyNow says whether somebody does something with a guest by now, for which the next round waits. Nobody is waited
// for in a dry run.
func (e *evacuation) busyNow(ctx context.Context, name string) bool {
	if e.req.DryRun {
		return false
	}
	info, err := e.host.Host(ctx)
	return err == nil && slices.ContainsFunc(info.Guests, func(g api.GuestInfo) bool { return g.Name == name && g.Migration != "" })
}

// BusyWith says in words what somebody else does with a guest: the id of a migration, or a word of its agent's for what
// is none.
func BusyWith(id string) string {
	if migration.ValidID(id) {
		return "migration " + id
	}
	return "something else (" + id + ")"
}

// awaitOther waits for the end of a migration that is not ours. Where its guest stays, the
// next round moves it.
func (e *evacuation) awaitOther(ctx context.Context, busy api.GuestInfo) {
	name, g := busy.Name, e.of(busy.Name)
	switch {
	case e.unknown(ctx, g.Migration):
		e.awaitUnnamed(ctx, name, g.Migration)
		return
	case busy.Status == api.StatusStarving:
		e.awaitPages(ctx, name, g.Migration)
		return
	}
	rep, err := e.follow(ctx, g.Migration, true, func(migration.Phase) {})
	switch {
	case ctx.Err() != nil, errors.Is(err, errStartedAgain): // the next round looks what it waits for now
	case err != nil:
		e.set(name, func(x *Guest) { x.Reason = fmt.Sprintf("migration %s of it: %v", g.Migration, err) })
	case rep.Outcome == migration.Completed && rep.From == e.name, rep.Outcome == migration.InDoubt, rep.Outcome == migration.Failed:
		e.outcome(name, rep)
	case !e.awaitFree(ctx, name, g.Migration, func(api.GuestInfo) bool { return false }): // as a rule it is in a moment
		e.set(name, func(x *Guest) {
			x.Migration = "" // it is over
			x.Reason = fmt.Sprintf("migration %s of it is over (%s), and has it still: its QEMU may not answer, and the guest be paused; see `godwit guest ls`, and evacuate again when it is free", rep.ID, rep.Outcome)
		})
	}
}

// settleGone says what became of guests that left by a migration of somebody else's, or by none.
func (e *evacuation) settleGone(ctx context.Context, info api.HostInfo) {
	for name, g := range e.copies() {
		here := slices.ContainsFunc(info.Guests, func(i api.GuestInfo) bool { return i.Name == name })
		if here || g.Outcome != "" || g.Reason != "" {
			continue
		}
		rep, err := e.leftBy(ctx, name, g.Migration)
		switch {
		case err != nil: // the next round may know
		case rep.ID == "":
			e.set(name, func(x *Guest) {
				*x = Guest{Guest: name, Reason: fmt.Sprintf("it is not under care on %s any more: somebody has stopped it, or let go of it (`godwit guest forget`), and then it runs there still", e.name)}
			})
		case rep.Outcome != "":
			e.outcome(name, rep)
		default: // it runs there, and its handover is not over
			e.set(name, func(x *Guest) { x.Migration = rep.ID })
		}
	}
}

// leftBy is the migration by which a guest has left: the one that had it when it was looked at, or, where it was here after that, the last since;
// none: no migration is known by which it did.
func (e *evacuation) leftBy(ctx context.Context, name, id string) (rep record.Report, err error) {
	if id != "" && !e.unknown(ctx, id) {
		if rep, err = e.host.Report(ctx, id); err != nil || !e.stayed(rep) {
			return rep, err
		}
	}
	if id, err = e.lastOf(ctx, name, nil); id == "" {
		return record.Report{}, err
	}
	if rep, err = e.host.Report(ctx, id); e.stayed(rep) {
		rep = record.Report{}
	}
	return rep, err
}

// stayed says that a migration has ended by which a guest came here, or did not leave.
func (e *evacuation) stayed(rep record.Report) bool {
	switch rep.Outcome {
	case migration.Completed:
		return rep.To == e.name
	case migration.Aborted, migration.Refused:
		return rep.From == e.name
	}
	return false
}

// unknown says that the agent knows of no such migration: somebody plans one of a guest, or something else is done with
// that.
func (e *evacuation) unknown(ctx context.Context, id string) bool {
	_, err := e.host.Report(ctx, id)
	var said *migration.Problem
	return errors.As(err, &said) && said.Code == migration.CodeUsage
}

// otherPatience is for how long a guest is waited for that is had by no migration under way; a plan takes half a minute
// at most.
const otherPatience = time.Minute

// awaitFree waits until a guest is not had by id any more, or goesOn says that its migration does: the next round looks
// again. false: it is so still.
func (e *evacuation) awaitFree(ctx context.Context, name, id string, goesOn func(api.GuestInfo) bool) bool {
	for until := time.Now().Add(otherPatience); clock.Sleep(ctx, tryPause); {
		info, err := e.host.Host(ctx)
		i := slices.IndexFunc(info.Guests, func(i api.GuestInfo) bool { return i.Name == name && i.Migration == id })
		switch {
		case err == nil && (i < 0 || goesOn(info.Guests[i])):
			return true
		case time.Now().After(until):
			return false
		}
	}
	return true // nobody waits
}

// awaitUnnamed waits for the end of what is no migration.
func (e *evacuation) awaitUnnamed(ctx context.Context, name, id string) {
	if e.awaitFree(ctx, name, id, func(api.GuestInfo) bool { return !e.unknown(ctx, id) }) {
		return
	}
	e.set(name, func(x *Guest) {
		x.Migration = "" // it is none
		x.Reason = fmt.Sprintf("something else is being done with it (%s), and is not over; see `godwit guest ls`", id)
	})
}

// awaitPages waits for a guest whose pages may never come, and with them the end of its migration.
func (e *evacuation) awaitPages(ctx context.Context, name, id string) {
	if e.awaitFree(ctx, name, id, func(g api.GuestInfo) bool { return g.Status != api.StatusStarving }) {
		return
	}
	e.set(name, func(x *Guest) {
		x.Reason = fmt.Sprintf("pages of its memory are missing, and do not come (migration %s of it); `godwit watch %[1]s` shows it, and evacuate again when it is over", id)
	})
}
