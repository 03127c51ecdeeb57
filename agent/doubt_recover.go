package agent

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"godwit/agent/api"
	"godwit/agent/care"
	"godwit/agent/fence"
	"godwit/agent/limits"
	"godwit/agent/peer"
	"godwit/agent/record"
	"godwit/agent/talk"
	"godwit/internal/oneline"
	"godwit/migration"
)

// doubts lists what a person may have to decide about on this host; about is a
// migration's id or a guest's name, "" for all.
func (a *Agent) doubts(ctx context.Context, about string) ([]api.Doubt, error) {
	a.mu.Lock()
	out := []api.Doubt{}
	var leaving []*outgoing
	var coming []*incoming
	for id, m := range a.outgoing {
		if (about == "" || about == id || about == m.plan.Guest) && m.snapshot().Released() {
			leaving = append(leaving, m)
		}
	}
	for id, m := range a.incoming {
		if about == "" || about == id || about == m.plan.Guest {
			coming = append(coming, m)
		}
	}
	for id, why := range a.unread {
		if about == "" || about == id {
			out = append(out, api.Doubt{ID: id, Here: why, There: "not asked", Ways: []string{
				"see with the host's tools what runs; when the guest is where it should be, move STATE/journal/" + id + ".journal away and start the agent again"}})
		}
	}
	a.mu.Unlock()
	out = append(out, askedAtOnce(leaving, func(m *outgoing) (api.Doubt, bool) {
		d := m.doubt(ctx)
		return d, about != "" || !d.Alive
	})...)
	out = append(out, askedAtOnce(coming, func(m *incoming) (api.Doubt, bool) { return m.doubt(ctx) })...)
	out = append(out, a.unheardDoubts(ctx, about)...)
	if len(out) == 0 && about != "" {
		return nil, &migration.Problem{Code: migration.CodeUsage, Text: fmt.Sprintf(
			"recover %s: nothing on host %s is to be decided about it; see `godwit history`", about, a.config.Host)}
	}
	return out, nil
}

// askedAtOnce are those of all that are doubts. Each may take its time to ask.
func askedAtOnce[M any](all []M, ask func(M) (api.Doubt, bool)) (out []api.Doubt) {
	found, is := make([]api.Doubt, len(all)), make([]bool, len(all))
	var asked sync.WaitGroup
	for i, m := range all {
		asked.Go(func() { found[i], is[i] = ask(m) })
	}
	asked.Wait()
	for i, d := range found {
		if is[i] {
			out = append(out, d)
		}
	}
	return out
}

// doubt is what the source knows, and what the destination says now.
func (m *outgoing) doubt(ctx context.Context) api.Doubt {
	d := api.Doubt{ID: m.plan.ID, Guest: m.plan.Guest, Side: "source", Peer: m.plan.To, Epoch: m.snapshot().Epoch, Here: "the guest was let go here"}
	if !m.guest.Alive() {
		d.Here += ", and its QEMU here is gone: there is nothing to take back"
	} else {
		d.Here += "; it is paused, its memory and disks are as they were then"
	}
	if answer, err := m.askLanding(ctx); err != nil {
		d.There = err.Error()
	} else {
		d.There, d.Proven, d.Alive = oneline.Of(answer.Words(m.plan.To)), answer.Vanished != "" && answer.Status == "", answer.Vanished == ""
	}
	d.Risk, d.Ways = m.ways(d)
	return d
}

// ways are what a person can do about a source's doubt, and what that risks.
func (m *outgoing) ways(d api.Doubt) (risk string, ways []string) {
	to, back := m.plan.To, "bring "+m.plan.To+" or a path to it back: the doubt then ends by itself"
	switch {
	case d.Alive:
		return "", nil
	case !m.guest.Alive() && d.Proven:
		return "the guest is lost; its disks are kept on both hosts", []string{"godwit recover " + d.ID + " --give-up, on " + to}
	case !m.guest.Alive():
		return "where " + to + " never comes back the guest is lost; its disks here are as they were at the switch",
			[]string{back, "where it never does: move STATE/journal/" + d.ID + ".journal away and start the agent again; the guest's name is free then"}
	case d.Proven:
		return "the guest goes back to the moment of the switch: what it did on " + to + " since, if it ran, is lost", []string{"godwit recover " + d.ID + " --take-back"}
	}
	return fmt.Sprintf("if the guest runs on %s it will run twice until the two hosts hear of each other; then the one on %s is ended, and what it did since the switch is lost", to, to),
		[]string{back, "godwit recover " + d.ID + " --take-back" + m.a.onceOff(to)}
}

// onceOff ends the command that decides about a host which does not answer: it is not refused as it is typed.
func (a *Agent) onceOff(host string) string {
	if a.config.Fence != "" {
		return ": the fence switches " + host + " off, or proves that it is; where it cannot, --fenced, once you know it"
	}
	return " --fenced, once " + host + " or the guest's QEMU there is off"
}

// doubt is what a destination knows whose QEMU is gone, or whose guest misses pages.
func (m *incoming) doubt(ctx context.Context) (api.Doubt, bool) {
	state := m.snapshot()
	d := api.Doubt{
		ID: m.plan.ID, Guest: m.plan.Guest, Side: "destination", Peer: m.plan.From, Epoch: m.plan.Epoch,
		Risk: "the guest goes back to the moment of the switch, on " + m.plan.From + "; where its QEMU is gone too, it is lost",
	}
	switch {
	case state.Vanished:
		d.Proven, d.Here = true, m.vanishedWords(state)
		d.There = "not asked: only a source that never let go, or took the guest back, ends this by itself"
		d.Ways = []string{"godwit recover " + m.plan.ID + " --give-up here, or --take-back on " + m.plan.From}
	case m.forsaken(ctx):
		d.Here = "the guest misses pages that " + m.plan.From + " alone has: it stands still where it touches them"
		d.There = fmt.Sprintf("%s has said nothing for %v, though it is asked", m.plan.From, m.silentFor().Round(time.Second))
		d.Ways = []string{
			"bring " + m.plan.From + " or a path to it back: the pages come, and the guest goes on",
			"godwit recover " + m.plan.ID + " --give-up, if " + m.plan.From + " will not come back: what the guest did here is lost, but for its disks, which are kept",
		}
	default:
		return d, false
	}
	return d, true
}

func (m *incoming) vanishedWords(state migration.Destination) string {
	if state.Problem != nil {
		return state.Problem.Text
	}
	return fmt.Sprintf("guest %s: its QEMU on %s is gone, and it may have run there", m.plan.Guest, m.plan.To)
}

// seeVanished takes note that the destination cannot say more.
func (m *outgoing) seeVanished(why string) {
	if why == "" || m.rec.Snapshot().Outcome == migration.InDoubt {
		return
	}
	m.rec.Note("in doubt: " + why)
	if m.state.InDoubt { // it was counted as that came
		m.rec.Edit(func(r *record.Report) { r.Outcome = migration.InDoubt })
		return
	}
	m.inDoubt()
}

// newEpoch acts on a right that is not the one the migration began with.
func (m *outgoing) newEpoch(next migration.Source) {
	m.rec.Edit(func(r *record.Report) { r.Epoch = next.Epoch })
	if next.Taken {
		m.rightTaken(next)
		return
	}
	m.beginAgain(next)
}

// rightTaken has the guest be here by the right that was taken back, and its destination told of it.
func (m *outgoing) rightTaken(next migration.Source) {
	m.rec.Note(fmt.Sprintf("the right to run guest %s was taken back, with epoch %d: %s", m.plan.Guest, next.Epoch, next.Problem.Text))
	m.guest.Remember(func(h *care.Held) { h.Epoch = next.Epoch })
	if err := m.a.guests.Save(m.guest); err != nil {
		m.a.log.Error("keep guest", "guest", m.plan.Guest, "error", err)
	}
	taken := m.writeTaken(next)
	m.a.actors.Go(func() { m.a.tellTaken(taken) })
}

// takenAgain has the guest be here by the right that an earlier agent took back: by the one before, its next migration
// would hand over that which was taken.
func (m *outgoing) takenAgain() {
	if m.aside {
		return // it may have come here by a later one
	}
	m.guest.Remember(func(h *care.Held) { h.Epoch = max(h.Epoch, m.state.Epoch) })
	if err := m.a.guests.SaveIfHere(m.guest); err != nil {
		m.a.log.Error("keep guest", "guest", m.plan.Guest, "error", err)
	}
}

// writeTaken keeps for whom the taking back has to be told, until it was.
func (m *outgoing) writeTaken(state migration.Source) Taken {
	taken := Taken{Migration: m.plan.ID, Host: m.plan.To, Undo: talk.Undo{Epoch: state.Epoch, Released: true}, told: new(atomic.Bool)}
	if state.Problem != nil {
		taken.Undo.Problem = *state.Problem
	}
	if err := taken.write(m.a); err != nil {
		m.a.log.Error("write down that it was taken back; it is tried again", "migration", m.plan.ID, "error", err)
		m.untaken = &taken
	}
	return taken
}

// takeBack gives the guest back to this host, when it is known that it cannot run at
// the destination: the destination says so, a fence proves it, or a person vouches.
// On success the act is on the disk, and the guest is being continued.
func (a *Agent) takeBack(ctx context.Context, id string, word api.TakeBack) error {
	a.mu.Lock()
	m := a.outgoing[id]
	a.mu.Unlock()
	refuse := func(format string, args ...any) error {
		return &migration.Problem{Code: migration.CodeUsage, Text: "take back " + id + ": " + fmt.Sprintf(format, args...)}
	}
	if m == nil || !m.snapshot().Released() {
		return refuse("no migration of that id has let its guest go on host %s", a.config.Host)
	}
	if !m.guest.Alive() {
		return refuse("the guest's QEMU here is gone; what there is of guest %s is on %s", m.plan.Guest, m.plan.To)
	}
	d := m.doubt(ctx)
	why := ""
	switch {
	case d.Alive:
		return refuse("%s", d.There)
	case d.Proven:
		why = m.plan.To + " itself says that its QEMU is gone"
	case word.Fenced:
		why = "a person said that it cannot run on " + m.plan.To
	case a.config.Fence != "":
		if err := fence.Prove(ctx, a.config.Fence, fence.Ask{Migration: m.plan.ID, Guest: m.plan.Guest, Host: m.plan.To, Epoch: m.plan.Epoch}); err != nil {
			return refuse("%v; nothing was changed", err)
		}
		why = "the fence " + a.config.Fence + " says that it cannot run on " + m.plan.To
	default:
		return refuse("%s; switch %s, or the guest's QEMU there, off, then say --fenced; or configure a fence", d.There, m.plan.To)
	}
	in := migration.Input{Kind: migration.TakeBack, Problem: &migration.Problem{Code: migration.CodeAsked, Text: "taken back: " + why}}
	return m.hear(ctx, in, d.Epoch, refuse)
}

// giveUp is a person's word, at a destination, that what may have run here is given up.
func (a *Agent) giveUp(ctx context.Context, id string) error {
	a.mu.Lock()
	m := a.incoming[id]
	a.mu.Unlock()
	if m == nil || !m.snapshot().Vanished && !m.forsaken(ctx) {
		return &migration.Problem{Code: migration.CodeUsage, Text: fmt.Sprintf("give up %s: nothing of it is in doubt on host %s", id, a.config.Host)}
	}
	why := &migration.Problem{Code: migration.CodeAsked, Text: fmt.Sprintf("a person gave guest %s up on %s", m.plan.Guest, m.plan.To)}
	if err := m.tell(ctx, migration.Input{Kind: migration.Disown, Problem: why}); err != nil {
		return err
	}
	ctx, cancel := limits.Word.On(ctx)
	defer cancel()
	_, err := m.await(ctx, migration.Destination.Refused)
	return err
}

func (a *Agent) apiDoubts(r *http.Request) (any, error) {
	return a.doubts(r.Context(), r.FormValue("about"))
}

func (a *Agent) apiTakeBack(r *http.Request) (any, error) {
	var word api.TakeBack
	if err := peer.DecodeKnown(r, &word); err != nil {
		return nil, err
	}
	return nil, a.takeBack(r.Context(), r.PathValue("id"), word)
}

func (a *Agent) apiGiveUp(r *http.Request) (any, error) {
	return nil, a.giveUp(r.Context(), r.PathValue("id"))
}

// cannotRead keeps, for `godwit recover`, why a journal was left alone.
func (a *Agent) cannotRead(id string, err error) {
	a.log.Error("journal left alone; its guest is left as it is", "migration", id, "error", err)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.unread == nil {
		a.unread = map[string]string{}
	}
	a.unread[id] = err.Error()
}
