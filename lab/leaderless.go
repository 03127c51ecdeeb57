package lab

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"godwit/agent/api"
	"godwit/agent/record"
	"godwit/lab/report"
	"godwit/lab/scenario"
	"godwit/migration"
	"godwit/netstate/netns"
	"godwit/vm"
	"godwit/vm/qemu"
)

// A migration whose leading agent was killed and is not started again gets no outcome from an agent, unless
// its destination completes it: silence gives nothing back. The lab sees both hosts, and says how it stands.

// leaderlessFor is how long both sides must have stood as they do before the lab takes that for the outcome: a release
// that left before the agent was killed has arrived and been acted upon.
const leaderlessFor = 5 * time.Second

// leaderless is how such a migration was seen to stand, and since when.
type leaderless struct {
	outcome report.Outcome // "": the guest may run at the destination
	since   time.Time
	stood   bool // the guest was seen to stand still at the source
}

// bothSides is how the two hosts of such a migration stand.
type bothSides struct {
	source vm.Status // what the source's QEMU says of the guest; "": it has ended
	there  bool      // the destination has it run
	heard  bool      // the destination said whether it has
	alone  bool      // the source's QEMU may change that with nobody who leads it
}

// see takes in a look, and gives the outcome if it is one by now, and why.
func (l *leaderless) see(now time.Time, at bothSides) (report.Outcome, string) {
	l.stood = l.stood || at.source != vm.Running && at.source != ""
	outcome := report.Outcome("")
	switch {
	case at.there, at.alone:
	case at.source == vm.Running: // it is stopped before it is let go, and never goes on after that
		outcome = report.Aborted
	case !at.heard:
	case at.source == "":
		outcome = report.Failed
	default:
		outcome = report.InDoubt
	}
	if outcome != l.outcome {
		l.outcome, l.since = outcome, now
	}
	if outcome == "" || now.Sub(l.since) < leaderlessFor {
		return "", ""
	}
	return outcome, "its source's agent was killed and not started again; " + map[report.Outcome]string{
		report.Aborted: "the guest runs on at the source",
		report.Failed:  "the source's QEMU has ended, too, and the destination was never told to start the guest",
		report.InDoubt: "the guest stands still at the source, and the destination has not started it: the source's agent has to be started",
	}[outcome]
}

// leaderless judges a migration whose source's agent is gone for good, and says whether it has its outcome.
func (r *run) leaderless(ctx context.Context, host *hostAgent, m *move, seen *leaderless) bool {
	if r.startsAgain(host.host.Name, m.guest) {
		return false
	}
	ask, cancel := context.WithTimeout(ctx, lastWordTime)
	defer cancel()
	rep, err := r.w.agents[r.resolve(m)].client.Report(ask, m.id)
	heard := !api.Unanswered(err) // that it knows of no such migration is a word, too
	source, alone, err := host.standsOf(ask, m.guest)
	if err != nil { // its monitor did not answer in time
		return false
	}
	outcome, why := seen.see(time.Now(), bothSides{source, rep.Resumed != 0, heard, alone})
	if outcome == "" {
		return false
	}
	m.judge(outcome, migration.CodeAgent, why)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stood = seen.stood
	return true
}

// judge has the lab's own word for how the migration ended.
func (m *move) judge(outcome report.Outcome, code migration.Code, why string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.judged, m.judgedCode, m.judgedWhy = outcome, code, why
}

// deadEndFor is how long a migration must have been seen to have no end before nobody waits for it any more:
// longer than a handover waits for connections. deadEndEvery is between two looks.
const (
	deadEndFor   = 15 * time.Second
	deadEndEvery = time.Second
)

// deadEnd judges a migration of which its source's agent tells no outcome, and no more can come in this run without a
// person: in doubt, with nothing to come that could end that, or let go to a destination whose agent is gone for
// good. Of one whose last pages are lost the agents themselves say so. since is when it was first seen so; the zero time: it was not.
func (r *run) deadEnd(ctx context.Context, host *hostAgent, m *move, since *time.Time) bool {
	ask, cancel := context.WithTimeout(ctx, lastWordTime)
	defer cancel()
	rep, err := host.client.Report(ask, m.id)
	if err != nil || rep.Ended != 0 || rep.Outcome != migration.InDoubt && rep.Resumed == 0 {
		*since = time.Time{} // it may still turn back
		return false
	}
	outcome, code, why := r.hopeless(ask, host, m, &rep)
	if why == "" {
		*since = time.Time{}
		return false
	}
	if since.IsZero() {
		*since = time.Now()
	}
	if time.Since(*since) < deadEndFor {
		return false
	}
	m.set(&rep)
	m.judge(outcome, code, why)
	return true
}

// hopeless says how a migration stands that was let go, and why it has no end in this run; "": it may have. The code is
// of an agent that nobody starts again.
func (r *run) hopeless(ctx context.Context, host *hostAgent, m *move, rep *record.Report) (report.Outcome, migration.Code, string) {
	to := r.w.agents[r.resolve(m)]
	forGood := to != nil && to.goneForGood() && !r.startsAgain(to.host.Name, m.guest)
	doubt := rep.Outcome == migration.InDoubt
	switch {
	case doubt && forGood:
		return report.InDoubt, migration.CodeAgent, "the destination's agent was killed and not started again: whether it starts the guest is not known, and the source keeps memory and disk"
	case doubt:
		var about api.Doubt
		if all, err := host.client.Doubts(ctx, m.id); err == nil && len(all) == 1 {
			about = all[0]
		}
		if about.Proven || !r.mayChange(m.guest) {
			return report.InDoubt, "", "the source keeps memory and disk, and a person has to decide: " + cmp.Or(about.There, "whether the guest runs at the destination is not known")
		}
	case forGood:
		return "", migration.CodeAgent, "the guest runs at the destination, whose agent was killed and not started again: its handover has no end"
	}
	return "", "", ""
}

// mayChange says whether something is still to come that could end a doubt about a guest: a step, but one that waits
// for a phase of that guest, an agent's start, or the end of a cut.
func (r *run) mayChange(guest string) bool {
	for _, a := range r.w.agents {
		if a.starting() {
			return true
		}
	}
	return r.toCome(func(step *scenario.Step) bool { return step.At.Guest != guest }) || r.restoring.Load() > 0
}

// startsAgain says whether a step that is still to come starts the host's agent. One that waits for
// a phase of the guest does not come while its migration lasts.
func (r *run) startsAgain(host, guest string) bool {
	return r.toCome(func(step *scenario.Step) bool {
		k := step.Kill
		return k != nil && k.Restart && step.At.Guest != guest && slices.Contains(r.w.scenario.Hosts(k.Agent), host)
	})
}

// toCome says whether such a step has not been begun yet.
func (r *run) toCome(such func(*scenario.Step) bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.w.scenario.Steps {
		step := &r.w.scenario.Steps[i]
		if such(step) && !slices.ContainsFunc(r.steps, func(d stepDone) bool { return d.step == step }) {
			return true
		}
	}
	return false
}

// standsOf asks the guest's QEMU on this host itself how it stands; "": there is none. alone says that this may change
// with nobody who leads its migration: a QEMU that sends by connections of its own sends the last of a guest, and one
// before 8.1 may stop it for that, without an agent.
func (h *hostAgent) standsOf(ctx context.Context, guest string) (status vm.Status, alone bool, err error) {
	pid, lives := qemusIn(netns.Processes(h.host.Namespace))[guest]
	for dir, p := range h.qemus() {
		if lives && p == pid {
			status, alone, err = standsIn(ctx, dir)
			if errors.Is(err, qemu.ErrGone) {
				return "", false, nil
			}
			return status, alone, err
		}
	}
	return "", false, nil
}

// standsIn is standsOf the QEMU of a directory.
func standsIn(ctx context.Context, dir string) (status vm.Status, alone bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	l, err := qemu.Look(ctx, dir)
	if err != nil {
		return "", false, err
	}
	defer l.Close()
	if status, err = l.Status(ctx); err != nil {
		return "", false, err
	}
	sends, held, err := l.Sends(ctx)
	return status, sends == vm.Device || status == vm.Running && !sends.Ended() && !held, err
}
