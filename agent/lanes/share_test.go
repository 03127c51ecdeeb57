package lanes

import (
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"godwit/agent/config"
	"godwit/agent/peer"
	"godwit/agent/peer/peertest"
	"godwit/transfer/paths"
	"godwit/transfer/proxy"
)

// pathsOf are lanes of two uplinks of 100 and 300 Mbit/s here, over one of 200 there, and none of these shared with guests.
func pathsOf() []peer.Path {
	end := func(last byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, last}) }
	return config.LanePaths([]peer.Path{
		{Name: "a-x", Local: end(1), Remote: end(9), Rate: 200e6, LocalRate: 300e6, RemoteRate: 200e6, Memory: true},
		{Name: "b-x", Local: end(2), Remote: end(9), Rate: 100e6, LocalRate: 100e6, RemoteRate: 200e6, Memory: true},
	})
}

// over are a lane over each of these paths.
func over(link *peer.Link, all []peer.Path) ([]paths.Lane, *Share) {
	return Over(link, all, len(all), func(number int) peer.Header {
		return peer.Header{Migration: "m-00000001", Kind: Memory, Number: number}
	})
}

// TestDeadLanesLeaveTheirShare: what a lane that does not work would have of an uplink the others get, and not more than
// their own; when it works again each has its part as before.
func TestDeadLanesLeaveTheirShare(t *testing.T) {
	all := pathsOf()
	bytes := func(bits float64) int64 { return int64(bits / 8 * ownShare) }
	before := []int64{Pace(all[0], 2, 2), Pace(all[1], 2, 2)}
	if before[0] >= bytes(200e6) || before[1] >= bytes(100e6) {
		t.Fatalf("they do not share: %v", before)
	}
	for name, c := range map[string]struct {
		works map[string]bool
		want  []int64
	}{
		"both":       {map[string]bool{"a-x": true, "b-x": true}, before},
		"the first":  {map[string]bool{"a-x": true, "b-x": false}, []int64{bytes(200e6), 0}},
		"the second": {map[string]bool{"b-x": true}, []int64{0, bytes(100e6)}},
		"none":       {nil, []int64{0, 0}},
	} {
		if got := rates(all, c.works, make([]bool, 2), 2); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if got, want := rates(all, map[string]bool{"a-x": true}, make([]bool, 2), 6), []int64{bytes(200e6 / 3), 0}; !slices.Equal(got, want) {
		t.Errorf("lanes of three disks: %v, want %v", got, want)
	}
	if !sharesUplinks(all) || sharesUplinks(all[:1]) {
		t.Error("who shares an uplink is not known")
	}
}

// TestLivingLaneIsPacedAnew: the kernel is told when another lane of the uplink has ended, and when it is there again.
func TestLivingLaneIsPacedAnew(t *testing.T) {
	link := peertest.Link(t, "paris", "rome", nil, func(s *peer.Stream) {
		s.Read(make([]byte, 1)) //nolint:errcheck // it ends with the lane
	})
	all := pathsOf()
	for i := range all {
		all[i].Local, all[i].Remote = peertest.Loopback, peertest.Loopback // they are dialled
	}
	lanes, share := over(link, all)
	share.paths = pathsOf()
	var conns []net.Conn
	for _, l := range lanes {
		conn, err := l.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns = append(conns, conn)
	}
	paced := func(what string, want int64) {
		t.Helper()
		if got := pacingOf(t, conns[0]); got != want {
			t.Errorf("%s: %d bytes/s, want %d", what, got, want)
		}
	}
	part := Pace(all[0], 2, 2)
	paced("at first", part)
	share.pace(map[string]bool{"a-x": true})
	paced("the other has ended", Pace(peer.Path{Rate: 200e6}, 1, 1))
	share.pace(map[string]bool{"a-x": true, "b-x": true})
	paced("the other works again", part)
}

// TestSharedPathIsFilledWhileFree: what guests' clients leave of a path a lane has, until packets wait on it.
func TestSharedPathIsFilledWhileFree(t *testing.T) {
	link := peertest.Link(t, "paris", "rome", nil, func(s *peer.Stream) {
		s.Read(make([]byte, 1)) //nolint:errcheck // it ends with the lane
	})
	path := peer.Path{Name: "a-x", Local: peertest.Loopback, Remote: peertest.Loopback, Rate: 200e6, LocalRate: 200e6, RemoteRate: 200e6, Shared: true, Memory: true}
	lanes, share := over(link, []peer.Path{path})
	conn, err := lanes[0].Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	works := map[string]bool{"a-x": true}
	paced := func(what string, share float64) {
		t.Helper()
		if got, want := pacingOf(t, conn), int64(200e6/8*share); got != want {
			t.Errorf("%s: %d bytes/s, want %d", what, got, want)
		}
	}
	paced("at first", sharedShare)
	share.pace(works)
	paced("nothing waits", ownShare)
	share.ease[0] = easing{again: time.Now().Add(time.Hour)}
	share.pace(works)
	paced("something has waited", sharedShare)
}

// TestEasing: a path is filled while round trips are short; else it is left to others for a while, longer where that came
// of filling it, and shorter again when it was filled for long and nothing waited.
func TestEasing(t *testing.T) {
	const least = 20 * time.Millisecond
	begun := time.Unix(1, 0)
	var e easing
	at := func(after, rtt time.Duration, want bool) {
		t.Helper()
		if got := e.see(rtt, least, begun.Add(after)); got != want {
			t.Errorf("after %v, round trips of %v: filled %v, want %v", after, rtt, got, want)
		}
	}
	if e.see(0, 0, begun) {
		t.Error("filled, and no round trip is known")
	}
	e = easing{}
	at(0, least+waitsMost, true)
	at(time.Second, least+waitsMost+1, false)
	at(time.Second+holdLeast-1, least, false)
	at(time.Second+holdLeast, least, true)
	at(4*time.Second, 2*least, false)
	at(4*time.Second+2*holdLeast-1, least, false)
	at(6*time.Second, 2*least, false) // others' doing: it was not filled
	at(6*time.Second+2*holdLeast, least, true)
	at(11*time.Second+holdKept, least, true)
	at(30*time.Second, 2*least, false)
	at(30*time.Second+holdLeast, least, true)
}

// TestLanesAreWatched: the lanes of a session share anew by themselves, until it ends.
func TestLanesAreWatched(t *testing.T) {
	id := paths.Identity{Migration: "m-00000001"}
	destination, err := proxy.NewDestination(t.Context(), proxy.DestinationConfig{Identity: id, Socket: filepath.Join(t.TempDir(), "in"), Mirror: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer destination.Close() //nolint:errcheck // its end is no matter
	link := peertest.Link(t, "paris", "rome", nil, func(s *peer.Stream) {
		if s.Header.Number == 0 {
			destination.Serve(t.Context(), s) //nolint:errcheck // the lane's end tells
		}
	})
	all := pathsOf()
	for i := range all {
		all[i].Local, all[i].Remote = peertest.Loopback, peertest.Loopback
	}
	config := proxy.SourceConfig{Socket: filepath.Join(t.TempDir(), "out"), Identity: id, Spill: t.TempDir()}
	lanes, share := over(link, all) // of which the second is not answered
	config.Lanes, share.paths = lanes, pathsOf()
	source, err := proxy.ListenSource(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		share.Keep(source.Done(), func() []paths.Path { return source.Stats().Paths })
	}()
	told := func() int64 {
		share.mu.Lock()
		defer share.mu.Unlock()
		return share.paced[0]
	}
	for limit := time.Now().Add(10 * time.Second); told() != Pace(peer.Path{Rate: 200e6}, 1, 1); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("a lane that works alone is paced to %d bytes/s", told())
		}
	}
	source.Close() //nolint:errcheck // as above
	<-ended
}

func pacingOf(t *testing.T, conn net.Conn) (rate int64) {
	t.Helper()
	raw, err := conn.(interface{ NetConn() net.Conn }).NetConn().(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) { //nolint:errcheck // it is told below
		var n int
		n, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE)
		rate = int64(n)
	})
	if err != nil {
		t.Fatal(err)
	}
	return rate
}
