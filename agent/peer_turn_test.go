package agent

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"godwit/agent/agenttest"
	"godwit/agent/detour"
	"godwit/agent/talk"
	"godwit/migration"
	"godwit/netstate"
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
	}{{talk.Try{Epoch: 2}, true}, {talk.Try{Epoch: 3}, false}, {nil, false}} {
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

// TestHomeAfterTheRefusal: what was to come home with a guest does not, where that is asked for late, and the migration was given up by
// then: nobody would send it to the guest again.
func TestHomeAfterTheRefusal(t *testing.T) {
	a := between(t)
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Epoch: 3}
	m := &incoming{a: a, plan: plan, state: migration.Destination{Landing: migration.Declining, Epoch: 3}}
	a.incoming[plan.ID] = m
	addr := netip.MustParseAddr("10.2.1.20")
	place(a, &detour.Detour{ID: plan.ID, Guest: "web", Peer: "paris", Coming: []netstate.Visiting{{Addr: addr}}},
		&detour.Detour{ID: "m-00000002", Guest: "web", Peer: "paris", Leased: true, Away: []netstate.Away{{Addr: addr, Active: true}}})
	_, err := a.peerHome(callFrom(t, "paris", plan.ID, talk.Try{Epoch: 3}))
	agenttest.Refused(t, "home", err, migration.CodeUsage, plan.ID, "given up")
	if d := placed(a, "m-00000002"); len(d.Away) != 1 {
		t.Errorf("it is led nowhere: %+v", d)
	}
}
