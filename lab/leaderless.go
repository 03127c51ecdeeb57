package lab

import (
	"context"
	"errors"
	"slices"
	"time"

	"godwit/lab/report"
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
}

// see takes in a look, and gives the outcome if it is one by now. source is what the source's QEMU says of the guest, "" where it
// has ended; there says whether the destination has it run, and heard whether the destination said so.
func (l *leaderless) see(now time.Time, source vm.Status, there, heard bool) (report.Outcome, string) {
	outcome := report.Outcome("")
	switch {
	case there:
	case source == vm.Running: // it is stopped before it is let go, and never goes on after that
		outcome = report.Aborted
	case !heard:
	case source == "":
		outcome = report.Failed
	default:
		outcome = report.InDoubt
	}
	if outcome != l.outcome {
		*l = leaderless{outcome, now}
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

// leaderless judges a migration whose source's agent is gone for good, and says whether it has its outcome. Where
// QEMU sends memory to the other QEMU itself it goes on without any agent: that is not judged.
func (r *run) leaderless(ctx context.Context, host *hostAgent, m *move, seen *leaderless) bool {
	if m.step.InsecureTransfer || r.startsAgain(host.host.Name, m.guest) {
		return false
	}
	ask, cancel := context.WithTimeout(ctx, lastWordTime)
	defer cancel()
	rep, err := r.w.agents[r.resolve(m)].client.Report(ask, m.id)
	var unknown *migration.Problem
	heard := err == nil || errors.As(err, &unknown)
	source, err := host.statusOf(ask, m.guest)
	if err != nil { // its monitor did not answer in time
		return false
	}
	outcome, why := seen.see(time.Now(), source, rep.Resumed != 0, heard)
	if outcome == "" {
		return false
	}
	m.judge(outcome, why)
	return true
}

// judge has the lab's own word for how the migration ended.
func (m *move) judge(outcome report.Outcome, why string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.judged, m.judgedWhy = outcome, why
}

// deadEndFor is how long a destination's agent must have been gone for good, with the guest let go, before nobody waits for
// it any more: longer than a handover waits for connections.
const deadEndFor = 15 * time.Second

// deadEnd judges a migration that was let go to a destination whose agent is gone for good, and says whether nothing
// more comes of it. since is when it was first seen so; the zero time: it was not.
func (r *run) deadEnd(ctx context.Context, host *hostAgent, m *move, since *time.Time) bool {
	to := r.w.agents[r.resolve(m)]
	if to == nil || !to.goneForGood() || r.startsAgain(to.host.Name, m.guest) {
		*since = time.Time{}
		return false
	}
	ask, cancel := context.WithTimeout(ctx, lastWordTime)
	defer cancel()
	rep, err := host.client.Report(ask, m.id)
	if err != nil || rep.Ended != 0 || rep.Outcome != migration.InDoubt && rep.Resumed == 0 {
		*since = time.Time{} // it may still turn back
		return false
	}
	if since.IsZero() {
		*since = time.Now()
	}
	if time.Since(*since) < deadEndFor {
		return false
	}
	m.set(&rep)
	if rep.Resumed == 0 {
		m.judge(report.InDoubt, "the destination's agent was killed and not started again: whether it starts the guest is not known, and the source keeps memory and disk")
	} else {
		m.judge("", "the guest runs at the destination, whose agent was killed and not started again: its handover has no end")
	}
	return true
}

// startsAgain says whether a step that is still to come starts the host's agent. One that waits for
// a phase of the guest does not come while its migration lasts.
func (r *run) startsAgain(host, guest string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.w.scenario.Steps {
		step := &r.w.scenario.Steps[i]
		begun := slices.ContainsFunc(r.steps, func(d stepDone) bool { return d.step == step })
		if k := step.Kill; k != nil && k.Restart && !begun && step.At.Guest != guest && slices.Contains(r.w.scenario.Hosts(k.Agent), host) {
			return true
		}
	}
	return false
}

// statusOf asks the guest's QEMU on this host itself; "": there is none.
func (h *hostAgent) statusOf(ctx context.Context, guest string) (vm.Status, error) {
	pid, lives := qemusIn(netns.Processes(h.host.Namespace))[guest]
	for dir, p := range h.qemus() {
		if lives && p == pid {
			status, err := lookOnce(ctx, dir)
			if errors.Is(err, qemu.ErrGone) {
				return "", nil
			}
			return status, err
		}
	}
	return "", nil
}
