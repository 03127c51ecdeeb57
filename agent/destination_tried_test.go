package agent

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/guests"
	"godwit/agent/handed"
	"godwit/agent/journal"
	"godwit/agent/record"
	"godwit/agent/written"
	"godwit/vm/guest"
)

// killed is m as the next agent finds it, after one that was killed just now. Its guest goes on.
func killed(t *testing.T, m *incoming) *incoming {
	t.Helper()
	var j written.Destination
	log, err := journal.Open(m.a.config.StatePath("journal"), m.plan.ID, &j)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() }) //nolint:errcheck // or the migration did
	again := m.a.incomingAgain(j, log)
	again.work.guest, again.work.found = m.work.guest, true
	again.rec.Edit(func(r *record.Report) { r.FirstTick = &record.Tick{} })
	return again
}

// breaksOnce is a guest that does not answer one method the first time, whose connections have left the old address by
// the second try, and which tells them again by those ids in the first; and what it was asked to wait for.
func breaksOnce(t *testing.T, method string, told []uint8) (*guests.Guest, *[]guest.AwaitJoin) {
	asked, tried := &[]guest.AwaitJoin{}, map[string]int{}
	once := func(name string, value any) (any, error) {
		if tried[name]++; name == method && tried[name] == 1 {
			return nil, errors.New("no answer")
		}
		return value, nil
	}
	return talking(t, map[string]guest.Handler{
		"ticks": answers(struct{}{}, nil), "connections": answers(guest.Connections{}, nil), "make_main": answers(struct{}{}, nil),
		"configure": answers(guest.Configured{EndpointIDs: []uint8{5}}, nil), "users": answers(guest.Users{}, nil),
		"retire": func(context.Context, string, json.RawMessage) (any, error) { return once("retire", struct{}{}) },
		"await_join": func(_ context.Context, _ string, raw json.RawMessage) (any, error) {
			var p guest.AwaitJoin
			if err := json.Unmarshal(raw, &p); err != nil {
				return nil, err
			}
			if *asked = append(*asked, p); len(*asked) > 1 {
				return guest.Joins{}, nil
			}
			return once("await_join", guest.Joins{Total: 3, Joined: 3, Endpoints: told})
		},
	}), asked
}

// TestEndpointsOfAnEarlierTry: a handover whose first try broke, after the guest had told its clients again or perhaps
// had, goes on by ids of which nobody has heard, and so does the next move; also where the agent was killed between the
// two tries. What followed in the first is told.
func TestEndpointsOfAnEarlierTry(t *testing.T) {
	for _, c := range []struct {
		name, breaks string
		told         []uint8 // by the first try
		spare        []uint8 // of the second, which needs none
		last         uint8
		moved        int
	}{
		{"it was told again", "retire", []uint8{7}, []uint8{9, 11, 13}, 7, 3},
		{"it may have been", "await_join", []uint8{7}, []uint8{13, 15, 17}, 11, 0},
		{"it was not", "retire", nil, []uint8{7, 9, 11}, 5, 3},
	} {
		for _, dies := range []bool{false, true} {
			g, asked := breaksOnce(t, c.breaks, c.told)
			m := landing(t, g)
			m.a.detours = detour.New(m.a.config.StatePath("detours.json"), config.Network{}, map[string]*detour.Detour{})
			m.a.clock, m.work.preparation.Endpoint = time.Now, 3
			m.plan.Next[0].Endpoint = 5
			m.rec.Edit(func(r *record.Report) { r.FirstTick = &record.Tick{} })
			if err := m.adopt(t.Context()); err == nil {
				t.Fatalf("%s: it did not break", c.name)
			}
			if dies {
				m = killed(t, m)
			}
			if err := m.adopt(t.Context()); err != nil {
				t.Fatalf("%s, killed %v: %v", c.name, dies, err)
			}
			h, s := m.work.guest.Held(), m.work.survey
			if len(*asked) != 2 || !slices.Equal((*asked)[1].SpareIDs, c.spare) {
				t.Errorf("%s, killed %v: asked for %+v, want %v", c.name, dies, *asked, c.spare)
			}
			if next := handed.NextEndpoint(h.Endpoint); h.Endpoint != c.last || slices.Contains(c.told, next) {
				t.Errorf("%s, killed %v: the last id is %d, want %d; the next move has %d", c.name, dies, h.Endpoint, c.last, next)
			}
			if s.Moved != c.moved {
				t.Errorf("%s, killed %v: %d have moved, want %d", c.name, dies, s.Moved, c.moved)
			}
		}
	}
}

// TestWhoCouldNotFollowIsCounted: after a kill, too, a handover that fails tells of as many connections as it had seen.
func TestWhoCouldNotFollowIsCounted(t *testing.T) {
	g, _ := breaksOnce(t, "retire", nil)
	m := landing(t, g)
	m.a.detours = detour.New(m.a.config.StatePath("detours.json"), config.Network{}, map[string]*detour.Detour{})
	m.a.clock = time.Now
	m.work.joins = &guest.Joins{Total: 7, Joined: 3, Ended: 1, Unable: make([]guest.Unable, 2), Omitted: 1}
	m.noteTried()
	m = killed(t, m)
	if err := m.handed(m.work.joins, nil); err != nil {
		t.Fatal(err)
	}
	if s := m.work.survey; s.Total != 6 || s.Moved != 3 || s.Tunnelled != 3 {
		t.Errorf("told %+v", s)
	}
}
