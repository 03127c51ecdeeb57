package agent

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/guests"
	"godwit/agent/lanes"
	"godwit/agent/limits"
	"godwit/agent/peer"
	"godwit/agent/peer/peertest"
	"godwit/agent/record"
	"godwit/migration"
	"godwit/policy"
	"godwit/transfer/paths"
	"godwit/transfer/proxy"
)

// TestLaneFault: why lanes ended is told, but where it was QEMU that did, and where they go on.
func TestLaneFault(t *testing.T) {
	full := errors.New("write mirror: no space left on device")
	for _, end := range []error{full, &proxy.QEMUError{Err: errors.New("it is gone")}, nil} {
		ctx, cancel := context.WithCancelCause(t.Context())
		lanes, err := proxy.NewDestination(ctx, proxy.DestinationConfig{})
		if err != nil {
			t.Fatal(err)
		}
		m := &incoming{work: &destinationWork{lanes: lanes}}
		if end != nil {
			cancel(end)
		}
		if got := m.laneFault(); (got != nil) != (end == full) || got != nil && got.Error() != full.Error() {
			t.Errorf("%v: %v", end, got)
		}
		cancel(nil)
		<-lanes.Done()
	}
	if err := (&incoming{work: &destinationWork{}}).laneFault(); err != nil {
		t.Error(err)
	}
}

// TestLanesArePrepared: prepare begins to open every lane, over a path that answers nobody too,
// and waits for none; its undoing leaves no connection, and nothing for QEMU.
func TestLanesArePrepared(t *testing.T) {
	opened, ended := make(chan *peer.Stream, 10), make(chan struct{}, 10)
	link := peertest.Link(t, "paris", "rome", http.NotFoundHandler(), func(s *peer.Stream) {
		opened <- s
		io.Copy(io.Discard, s) //nolint:errcheck // it ends with the lane
		ended <- struct{}{}
	})
	nobody := netip.MustParseAddr("127.0.0.2")
	a := bareAgent(t, &config.Config{
		Host: "paris", Uplinks: []config.Uplink{{Name: "lo", Address: loopback, Carries: "both"}, {Name: "dead", Address: nobody, Carries: "migration"}},
		Peers: []config.Neighbour{{Host: "rome", Uplinks: []config.Uplink{{Name: "lo", Address: loopback, Carries: "both"}, {Name: "dead", Address: nobody, Carries: "migration"}}}},
	})
	a.ctx, a.feed = t.Context(), newFeed()
	var err error
	if a.detours, err = detour.Load(a.config.StatePath("detours.json"), config.Network{}); err != nil {
		t.Fatal(err)
	}
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Epoch: 2, Transfer: "lanes", Mode: "precopy"}
	m := &outgoing{
		a: a, guest: guests.New(care.Held{Dir: t.TempDir()}, nil), link: link, plan: plan,
		work: &sourceWork{laneKey: lanes.NewKey()}, rec: record.New("paris", plan, time.Now()),
	}
	begun := time.Now()
	if err := m.openLanes(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > limits.PrepareHere.For/2 { // there is none for the path that answers nobody
		t.Errorf("it was waited for, for %v", took)
	}
	if n := len(m.work.lanes.Stats().Paths); n != 2 {
		t.Errorf("lanes over %d paths", n)
	}
	select {
	case s := <-opened:
		if s.Header.Kind != lanes.Memory || s.Header.Migration != plan.ID {
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
	if _, err := os.Stat(m.outSocket()); !os.IsNotExist(err) {
		t.Errorf("what QEMU was to find: %v", err)
	}
	if m.work.forward != nil || m.work.lanes != nil {
		t.Error("they are taken to be there still")
	}
}

// TestRoundTripOfThePause: of the lanes, where there are any that have answered; what was probed on the guests' path else.
func TestRoundTripOfThePause(t *testing.T) {
	const probed = 80 * time.Millisecond
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Epoch: 2, Transfer: "lanes", Mode: "hybrid", Downtime: 30 * time.Millisecond}
	m := &outgoing{plan: plan, work: &sourceWork{rtt: probed}, rec: record.New("paris", plan, time.Now())}
	if m.pauseRTT() != probed {
		t.Errorf("no lanes: %v", m.pauseRTT())
	}
	id := paths.Identity{Migration: plan.ID}
	destination, err := proxy.NewDestination(t.Context(), proxy.DestinationConfig{Identity: id, Socket: filepath.Join(t.TempDir(), "in"), Mirror: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer destination.Close() //nolint:errcheck // its end is no matter
	may := make(chan struct{})
	m.work.lanes, err = proxy.ListenSource(t.Context(), proxy.SourceConfig{
		Socket: filepath.Join(t.TempDir(), "out"), Identity: id, Spill: t.TempDir(),
		Lanes: []paths.Lane{{Path: "a", Open: func(context.Context) (net.Conn, error) {
			<-may
			here, there := net.Pipe()
			go destination.Serve(t.Context(), there) //nolint:errcheck // the lane's end tells
			return here, nil
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer m.work.lanes.Close() //nolint:errcheck // as above
	if m.pauseRTT() != probed {
		t.Errorf("no lane works: %v", m.pauseRTT())
	}
	close(may)
	for limit := time.Now().Add(10 * time.Second); m.pauseRTT() > probed/2; time.Sleep(time.Millisecond) { // a busy machine's first may take long
		if time.Now().After(limit) {
			t.Fatalf("a lane within this host: %v", m.pauseRTT())
		}
	}
	if m.handLate(policy.Look{Goodput: 1 << 30, Tail: policy.PackedTail}); m.work.early {
		t.Errorf("what is left is taken for too much: %v", m.rec.Snapshot().Notes)
	}
}

// TestMultipathThatDoesNotOpen: where the connection of transfer mptcp over all paths opens in no try by any of them,
// and the lanes beside it carry memory, that is noted, once; not what opens by another path, or had stood, or where
// none works.
func TestMultipathThatDoesNotOpen(t *testing.T) {
	refused := paths.Path{Path: multipathName, Lanes: 2, Refused: 2, Last: "i/o timeout"}
	with := func(change func(*paths.Path)) paths.Path {
		p := refused
		change(&p)
		return p
	}
	for name, c := range map[string]struct {
		transfer string
		is       paths.Path
		noted    bool
	}{
		"refused by each":  {"mptcp", refused, true},
		"tried by one":     {"mptcp", with(func(p *paths.Path) { p.Refused = 1 }), false},
		"it stood":         {"mptcp", with(func(p *paths.Path) { p.Stood = true }), false},
		"nothing works":    {"mptcp", with(func(p *paths.Path) { p.Lanes = 0 }), false},
		"a lane of a path": {"lanes", refused, false},
	} {
		m, n := budgeted(t, "precopy", 0, 0)
		m.plan.Transfer = c.transfer
		n.Uplinks = append(n.Uplinks, config.Uplink{Name: "second", Address: netip.MustParseAddr("127.0.0.2"), Carries: "migration"})
		m.a.config.Uplinks, m.a.config.Peers = n.Uplinks, []config.Neighbour{n}
		for _, last := range []string{c.is.Last, "no route to host"} {
			c.is.Last = last
			m.notePlain([]paths.Path{c.is})
		}
		notes := m.rec.Snapshot().Notes
		if (len(notes) == 1) != c.noted || len(notes) > 1 || c.noted && !strings.Contains(notes[0], "cannot be opened (i/o timeout): memory goes by a plain connection of each path") {
			t.Errorf("%s: %q", name, notes)
		}
	}
}
