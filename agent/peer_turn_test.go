package agent

import (
	"net/http"
	"strings"
	"testing"

	"godwit/migration"
)

// TestLateTurn: what an earlier try of a migration asked for, and comes when the next one waits here, leads no packets; what
// that one asks for does, or an agent of before, which does not say by which try it asks.
func TestLateTurn(t *testing.T) {
	a := between(t)
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Epoch: 3}
	a.incoming[plan.ID] = &incoming{a: a, plan: plan}
	link := linked(t, "paris", "rome", a.peerAPI())
	for _, c := range []struct {
		ask  any
		late bool
	}{{Turn{2}, true}, {Turn{3}, false}, {nil, false}} {
		for what, done := range map[string]string{"home": "there is none", "away": ""} { // no detour was made, which is asked for then
			err := link.Call(t.Context(), http.MethodPost, "/v1/migrations/"+plan.ID+"/"+what, c.ask, nil)
			says := ""
			if err != nil {
				says = err.Error()
			}
			if c.late && !strings.Contains(says, "and not by 2") || !c.late && (!strings.Contains(says, done) || done == "" && err != nil) {
				t.Errorf("%s, asked with %+v: %v", what, c.ask, err)
			}
		}
	}
}
