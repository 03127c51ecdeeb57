package record

import (
	"fmt"
	"slices"

	"godwit/internal/oneline"
	"godwit/migration"
)

// Bounds of what is kept of another host's words, and of this one's.
const (
	mostNotes = 500
	mostSteps = 1000
	mostData  = 64 << 10 // of an event, bytes
)

// Sane cuts another host's report down.
func (r *Report) Sane() {
	if !slices.Contains(migration.Outcomes, r.Outcome) {
		r.Outcome = ""
	}
	if !slices.Contains(migration.Networks, r.Network) {
		r.Network = ""
	}
	SaneProblem(r.Problem)
	r.Notes = saneLines(r.Notes)
	r.Critical = r.Critical[:min(len(r.Critical), mostSteps)]
	for i := range r.Critical {
		s := &r.Critical[i]
		s.Name, s.MS = oneline.Of(s.Name), max(s.MS, 0)
	}
	r.Next = saneNext(r.Next)
	if r.Survey != nil {
		r.Survey.Unable = saneLines(r.Survey.Unable)
	}
	if r.PostCopy != nil {
		r.PostCopy.Why = oneline.Of(r.PostCopy.Why)
	}
	r.Survival.Sane()
}

// Sane cuts a list of connections down, and counts it anew.
func (s *Survival) Sane() {
	if s == nil {
		return
	}
	s.Connections = slices.DeleteFunc(s.Connections, func(c Survivor) bool { return !slices.Contains(migration.Fates, c.Fate) })
	s.Connections = s.Connections[:min(len(s.Connections), survivorsListed)]
	for i := range s.Connections {
		c := &s.Connections[i]
		c.Kind, c.Why = oneline.Of(c.Kind), oneline.Of(c.Why)
	}
	s.Omitted, s.Unknown = max(s.Omitted, 0), oneline.Of(s.Unknown)
	s.fit()
}

func saneNext(all []migration.Address) []migration.Address {
	if all = all[:min(len(all), migration.MostAddresses)]; migration.CheckAddresses(all) != nil {
		return nil
	}
	return all
}

func saneLines(all []string) []string {
	all = all[:min(len(all), mostNotes)]
	for i := range all {
		all[i] = oneline.Of(all[i])
	}
	return all
}

// SaneProblem makes a problem of another host one line, with a code that is known here.
func SaneProblem(p *migration.Problem) {
	if p == nil {
		return
	}
	if p.Text = oneline.Of(p.Text); !slices.Contains(migration.Codes, p.Code) {
		p.Code = migration.CodePeer
	}
}

// EventsAnswer is a part of a migration's story.
type EventsAnswer struct {
	Events []Event `json:"events"`
	Over   bool    `json:"over"` // no more will come
	Born   int64   `json:"born"` // of the record; another one counts its events anew

	Vanished string `json:"vanished,omitempty"` // at a destination: why it cannot go on by itself
}

// eventKinds are those of an Event.
var eventKinds = []string{"phase", "event", "progress", "step", "connection", "note", "outcome"}

// Sane says what of events cannot be meant, and cuts down what they say. They are those of
// host after number after, which it counts one by one.
func (e *EventsAnswer) Sane(host string, after int) error {
	e.Vanished = oneline.Of(e.Vanished)
	for i := range e.Events {
		one := &e.Events[i]
		if one.N != after+1+i {
			return &migration.Problem{Code: migration.CodePeer, Text: fmt.Sprintf("events of %s: number %d follows %d", host, one.N, after+i)}
		}
		if len(one.Data) > mostData {
			one.Data = nil
		}
		if one.Phase != "" && !slices.Contains(migration.Phases, one.Phase) {
			one.Phase = ""
		}
		if !slices.Contains(migration.Networks, one.Network) {
			one.Network = ""
		}
		one.Next = saneNext(one.Next)
		if _, known := migration.MomentOf(one.Name); one.Name != "" && !known || !slices.Contains(eventKinds, one.Kind) {
			one.Kind, one.Name = "note", "" // of a later release, perhaps
		}
		one.Host, one.Text = host, oneline.Of(one.Text)
	}
	return nil
}
