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
	"testing"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/lanes"
	"godwit/agent/limits"
	"godwit/agent/peer"
	"godwit/agent/peer/peertest"
	"godwit/agent/record"
	"godwit/migration"
	"godwit/policy"
	"godwit/transfer/pages"
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

// TestBufferFitsTheHost: pages of a guest take no more memory of its host than half of what is free there, or three quarters where it misses
// them, whatever its size and the mode.
func TestBufferFitsTheHost(t *testing.T) {
	const gib = 1 << 30
	defer func(was func() (int64, error)) { freeMemory = was }(freeMemory)
	buffer := func(free int64, plan migration.Plan, memory int64) int64 {
		freeMemory = func() (int64, error) { return free, nil }
		return bufferOf(plan, memory)
	}
	postcopy := migration.Plan{Mode: "postcopy"}
	kept := int64(pages.Need(64 * gib / pages.Size))
	for what, c := range map[string]struct{ got, want int64 }{
		"half of the guest":      {buffer(8*gib, migration.Plan{}, 128<<20), 64 << 20},
		"most":                   {buffer(8*gib, migration.Plan{}, 4*gib), proxy.DefaultBuffer},
		"most, on a full host":   {buffer(kept+128<<20, migration.Plan{}, 64*gib), 64 << 20},
		"all":                    {buffer(8*gib, postcopy, gib), gib + leastBuffer},
		"all, on a smaller host": {buffer(8*gib, postcopy, 64*gib), (8*gib - kept) / 2},
		"all, on a full host":    {buffer(kept, postcopy, 64*gib), leastBuffer},
		"as asked for":           {buffer(kept, migration.Plan{Mode: "postcopy", Buffer: gib}, 64*gib), gib},
	} {
		if c.got != c.want {
			t.Errorf("%s: a buffer of %d MiB, not %d", what, c.got>>20, c.want>>20)
		}
	}
	freeMemory = func() (int64, error) { return 8 * gib, nil }
	if got := refillBuffer(64 * gib); got != (8*gib-kept)/4*3 {
		t.Errorf("missing pages: a buffer of %d MiB", got>>20)
	}
	freeMemory = func() (int64, error) { return 0, errors.New("it does not say") }
	if got := refillBuffer(gib); got != gib+leastBuffer {
		t.Errorf("%d bytes where it is not known what is free", got)
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
		a: a, guest: &Guest{Held: care.Held{Dir: t.TempDir()}}, link: link, plan: plan,
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

// TestWhatTheLanesHaveToCarry: pages count as they are coded; of a stream that is passed on as it is each byte does,
// those that were read and wait for a lane, and those in QEMU's socket.
func TestWhatTheLanesHaveToCarry(t *testing.T) {
	coded := proxy.Stats{Queue: 1000, Unread: 2 * pages.Size, PageBytes: 100}
	if got := laneLeft(pages.Size, coded); got != 1300 {
		t.Errorf("pages: %d bytes", got)
	}
	coded.Opaque, coded.Raw = "dirty-bitmap", 8<<20
	if got, want := laneLeft(500, coded), int64(8<<20+1000+500+2*pages.Size); got != want {
		t.Errorf("an opaque stream: %d bytes, want %d", got, want)
	}
}

// TestKeptShare: how much of what is left waits for the pause, wherever pages are; more than all that is left is all.
// TestVersions: a page that QEMU says again as it was neither has to be sent nor was it.
func TestVersions(t *testing.T) {
	s := proxy.Stats{Progress: pages.Progress{Put: 150_000, Superseded: 20_000, Unchanged: 90_000, Waiting: 30_000, InFlight: 4000, Kept: 1000}}
	if read, sent := versions(s); read != 40_000 || sent != 7000 {
		t.Errorf("%d read, %d of them sent", read, sent)
	}
}

func TestKeptShare(t *testing.T) {
	for _, c := range []struct {
		kept, left uint64
		want       float64
	}{{0, 0, 0}, {0, 10, 0}, {5, 10, 0.5}, {10, 10, 1}, {11, 10, 1}} {
		if got := keptShare(c.kept, c.left); got != c.want {
			t.Errorf("%d of %d: %v", c.kept, c.left, got)
		}
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

// TestStandstillSaysWhyNoLane: a destination whose agent has ended is no path that is cut.
func TestStandstillSaysWhyNoLane(t *testing.T) {
	for want, d := range map[string]*record.DataPath{
		"": {Paths: []record.PathRate{{Path: "a", Lanes: 1, Last: "it was cut, and is back"}, {Path: "b"}}},
		", path a: connection refused, path b: no route to host": {Paths: []record.PathRate{
			{Path: "a", Last: "connection refused"}, {Path: "b", Last: "no route to host"}, {Path: "c", Lanes: 1},
		}},
	} {
		if got := whyNoLane(d); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := whyNoLane(nil); got != "" {
		t.Errorf("QEMU's own transfer: %q", got)
	}
}
