package agent

import (
	"io"
	"net/http"
	"net/netip"
	"os"
	"testing"
	"time"

	"godwit/agent/peer"
	"godwit/migration"
)

// TestLanesArePrepared: prepare begins to open every lane, over a path that answers nobody too,
// and waits for none; its undoing leaves no connection, and nothing for QEMU.
func TestLanesArePrepared(t *testing.T) {
	opened, ended := make(chan *peer.Stream, 10), make(chan struct{}, 10)
	link := linkedFor(t, "paris", "rome", http.NotFoundHandler(), func(s *peer.Stream) {
		opened <- s
		io.Copy(io.Discard, s) //nolint:errcheck // it ends with the lane
		ended <- struct{}{}
	})
	nobody := netip.MustParseAddr("127.0.0.2")
	a := bareAgent(t, &Config{
		Host: "paris", Uplinks: []Uplink{{Name: "lo", Address: loopback, Carries: "both"}, {Name: "dead", Address: nobody, Carries: "migration"}},
		Peers: []Neighbour{{Host: "rome", Uplinks: []Uplink{{Name: "lo", Address: loopback, Carries: "both"}, {Name: "dead", Address: nobody, Carries: "migration"}}}},
	})
	a.ctx, a.feed = t.Context(), newFeed()
	var err error
	if a.detours, err = loadDetours(a.config.dir("detours.json"), Network{}); err != nil {
		t.Fatal(err)
	}
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Epoch: 2, Transfer: "lanes", Mode: "precopy"}
	m := &outgoing{
		a: a, guest: &Guest{Held: Held{Dir: t.TempDir()}}, link: link, plan: plan,
		work: &sourceWork{laneKey: newLaneKey(plan)}, rec: newRecord("paris", plan, time.Now()),
	}
	begun := time.Now()
	if err := m.openLanes(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > 2*time.Second {
		t.Errorf("it was waited for, for %v", took)
	}
	if n := len(m.work.lanes.Stats().Paths); n != 2 {
		t.Errorf("lanes over %d paths", n)
	}
	select {
	case s := <-opened:
		if s.Header.Kind != laneKind || s.Header.Migration != plan.ID {
			t.Errorf("a stream with the header %+v", s.Header)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("no lane was opened")
	}
	if err := m.undo(t.Context(), migration.UndoPrepareHere); err != nil {
		t.Error(err)
	}
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("the lane is open still")
	}
	if _, err := os.Stat(m.lanesSocket()); !os.IsNotExist(err) {
		t.Errorf("what QEMU was to find: %v", err)
	}
	if m.work.forward != nil || m.work.lanes != nil {
		t.Error("they are taken to be there still")
	}
}
