package agent

import (
	"net/http"
	"strings"
	"testing"

	"godwit/agent/config"
	"godwit/agent/peer"
	"godwit/agent/talk"
	"godwit/migration"
)

// TestGoneAndRunsThere: a source whose journal is of before the switch, as its STATE was put back from a backup, does
// not say that a guest is lost of which its destination says that it runs there; and says so of any other.
func TestGoneAndRunsThere(t *testing.T) {
	for _, c := range []struct {
		name    string
		lost    bool
		doing   migration.Effect
		landing migration.Landing
		asked   bool
		runs    bool
	}{
		{"it runs there", true, migration.CopyMemory, migration.Landed, true, true},
		{"it is taken on there", true, migration.CopyMemory, migration.Adopting, true, true},
		{"it waited there", true, migration.CopyMemory, migration.Receiving, true, false},
		{"it was refused there", true, migration.CopyMemory, migration.Gone, true, false},
		{"it is not known there", true, migration.CopyMemory, "", true, false},
		{"it is here", false, migration.CopyMemory, migration.Landed, false, false},
		{"the switch had begun", true, migration.Release, migration.Landed, false, false},
	} {
		asked := false
		m := &outgoing{
			a: bareAgent(t, &config.Config{Host: "paris"}), plan: migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Epoch: 2}, lost: c.lost,
			state: migration.Source{Course: migration.Forward, Epoch: 2},
			link: linked(t, "paris", "rome", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if asked = true; c.landing == "" {
					peer.Answer(w, nil, &migration.Problem{Code: migration.CodeInternal, Text: "it is not known"})
					return
				}
				peer.Answer(w, talk.LandingAnswer{Landing: c.landing}, nil)
			})),
		}
		for m.state.Doing() != c.doing {
			m.state.At++
		}
		m.asking.Store(true)
		in := m.ifItRuns(t.Context(), migration.Input{Kind: migration.Restarted, Problem: goneProblem("web", "was lost")})
		if runs := strings.Contains(in.Problem.Text, "host rome says that it went there"); runs != c.runs || m.runsThere.Load() != c.runs || m.asking.Load() || asked != c.asked || in.Problem.Code != migration.CodeGuestGone {
			t.Errorf("%s: %+v, asked: %v", c.name, in.Problem, asked)
		}
	}
}
