package agent

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
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
	"godwit/transfer/qstream"
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

// TestMultipathThatDoesNotOpen: where the connection of transfer mptcp over all paths never opened, and the lanes beside
// it carried memory, that is noted as these end, once; not where it opened late, as what it was tried by was cut off
// first, where nothing was carried, or it was not tried to its end.
func TestMultipathThatDoesNotOpen(t *testing.T) {
	for name, c := range map[string]struct {
		is    paths.Path
		noted bool
	}{
		"it never opened":       {paths.Path{Acked: 4096, Refused: 1}, true},
		"it opened late":        {paths.Path{Acked: 4096, Refused: 2, Stood: true}, false},
		"nothing was carried":   {paths.Path{Refused: 2}, false},
		"it is being tried yet": {paths.Path{Acked: 4096}, false},
	} {
		m, _ := budgeted(t, "precopy", 0, 0)
		c.is.Path, c.is.Last = multipathName, "i/o timeout"
		for range 2 {
			m.notePlain([]paths.Path{c.is})
		}
		notes := m.rec.Snapshot().Notes
		if (len(notes) == 1) != c.noted || len(notes) > 1 || c.noted && !strings.Contains(notes[0], "did not open (i/o timeout): memory went by a plain connection of each path") {
			t.Errorf("%s: %q", name, notes)
		}
	}
}

// loads is a QEMU that takes whatever comes, until the test ends.
func loads(t *testing.T, socket string) {
	t.Helper()
	qemu, err := net.Listen("unix", socket) //nolint:noctx // of this test alone
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { qemu.Close() })
	go func() {
		if conn, err := qemu.Accept(); err == nil {
			io.Copy(io.Discard, conn) //nolint:errcheck // the test's end ends it
		}
	}()
}

// says is a QEMU that sends so many pages, and no more until the test ends.
func says(t *testing.T, socket string, count uint64) {
	t.Helper()
	stream, err := net.Dial("unix", socket) //nolint:noctx // of this test alone
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stream.Close() })
	w := qstream.NewWriter(stream, &qstream.Prologue{
		Head:    []byte("QEVM\x00\x00\x00\x03\x07\x00\x00\x00\x02pc\x08\x00\x01\x00\x00"),
		Machine: "pc", Section: 2, Blocks: qstream.Blocks{{Name: "pc.ram", Length: 16 << 20}},
	})
	if err := w.Begin(); err != nil {
		t.Fatal(err)
	}
	for page := range count {
		if err := w.Page(page, bytes.Repeat([]byte{byte(page), byte(page >> 8), 7, 9}, qstream.PageSize/4)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.EndPart(); err != nil {
		t.Fatal(err)
	}
}

// spareAlone are lanes of which the one over all paths opens once it may, and that a page is written to.
func spareAlone(t *testing.T, m *outgoing, may *atomic.Bool) *proxy.Source {
	t.Helper()
	id, dir := paths.Identity{Migration: m.plan.ID}, t.TempDir()
	loads(t, filepath.Join(dir, "in"))
	destination, err := proxy.NewDestination(t.Context(), proxy.DestinationConfig{Identity: id, Socket: filepath.Join(dir, "in"), Mirror: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { destination.Close() }) //nolint:errcheck // its end is no matter
	open := func(context.Context) (net.Conn, error) {
		here, there := net.Pipe()
		go destination.Serve(t.Context(), there) //nolint:errcheck // the lane's end tells
		return here, nil
	}
	lanes, err := proxy.ListenSource(t.Context(), proxy.SourceConfig{Socket: filepath.Join(dir, "out"), Identity: id, Spill: dir, Lanes: []paths.Lane{
		{Path: multipathName, Spare: true, Open: open},
		{Path: multipathName, Open: func(ctx context.Context) (net.Conn, error) {
			if may.Load() {
				return open(ctx)
			}
			return nil, errors.New("cut off")
		}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lanes.Close() }) //nolint:errcheck // as above
	says(t, filepath.Join(dir, "out"), 1)
	return lanes
}

// TestPlainIsToldAtTheEnd: in a copy it is not told that the connection over all paths does not open, as it may only be
// cut off; as the lanes end it is, if it never did.
func TestPlainIsToldAtTheEnd(t *testing.T) {
	for _, opens := range []bool{true, false} {
		m, _ := budgeted(t, "precopy", 0, 0)
		var may atomic.Bool
		lanes := spareAlone(t, m, &may)
		m.work.forward, m.work.lanes = lanes, lanes
		until := func(is func(p paths.Path) bool) {
			for limit := time.Now().Add(20 * time.Second); len(lanes.Stats().Paths) == 0 || !is(lanes.Stats().Paths[0]); time.Sleep(time.Millisecond) {
				if time.Now().After(limit) {
					t.Fatalf("%+v, %v", lanes.Stats().Paths, lanes.Err())
				}
			}
		}
		until(func(p paths.Path) bool { return p.Acked > 0 && p.Refused > 1 })
		if m.dataPath(); len(m.rec.Snapshot().Notes) > 0 {
			t.Errorf("in the copy: %q", m.rec.Snapshot().Notes)
		}
		if may.Store(opens); opens {
			until(func(p paths.Path) bool { return p.Stood })
		}
		m.takeForward()
		plain := slices.ContainsFunc(m.rec.Snapshot().Notes, func(note string) bool { return strings.Contains(note, "did not open (cut off)") })
		if plain == opens {
			t.Errorf("at the end, it opens %v: %q", opens, m.rec.Snapshot().Notes)
		}
	}
}
