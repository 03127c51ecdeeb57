package agent

import (
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/guests"
	"godwit/agent/lanes"
	"godwit/agent/peer"
	"godwit/agent/peer/peertest"
	"godwit/migration"
	"godwit/transfer/proxy"
)

// TestBufferIsKept: the pages of a guest that moves take no more memory than was asked for.
func TestBufferIsKept(t *testing.T) {
	const buffer, count = 1 << 20, 1024 // bytes; pages
	var to *proxy.Destination
	link := peertest.Link(t, "paris", "rome", http.NotFoundHandler(), func(s *peer.Stream) { to.Serve(t.Context(), s) }) //nolint:errcheck // the lane tells
	uplinks := []config.Uplink{{Name: "lo", Address: loopback, Carries: "both"}}
	a := bareAgent(t, &config.Config{Host: "paris", Uplinks: uplinks, Peers: []config.Neighbour{{Host: "rome", Uplinks: uplinks}}})
	a.ctx, a.links["rome"] = t.Context(), link
	underCare(t, a.guests, "web", guests.New(care.Held{Dir: t.TempDir()}, nil))
	m, err := a.draft(migration.Request{Guest: "web", To: "rome", Mode: "precopy", Transfer: "lanes", Buffer: buffer})
	if err != nil {
		t.Fatal(err)
	}
	m.work.laneKey, m.work.facts.Memory = lanes.NewKey(), 1<<30
	id, err := lanes.Identity(m.plan.ID, m.work.laneKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	loads(t, filepath.Join(dir, "in"))
	if to, err = proxy.NewDestination(t.Context(), proxy.DestinationConfig{Identity: id, Socket: filepath.Join(dir, "in"), Mirror: dir}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { to.Close() })
	if err := m.openLanes(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.work.lanes.Close() }) //nolint:errcheck // its end is no matter
	says(t, m.outSocket(), count)
	for limit := time.Now().Add(20 * time.Second); m.work.lanes.Stats().Delivered < count; time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("%v: %+v", m.work.lanes.Err(), m.work.lanes.Stats())
		}
	}
	if held := m.work.lanes.Stats().Held; held > buffer || held == 0 {
		t.Errorf("%d bytes of pages are held, of %d", held, buffer)
	}
}
