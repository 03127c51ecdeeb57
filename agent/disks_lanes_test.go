package agent

import (
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/lanes"
	"godwit/agent/peer"
	"godwit/agent/peer/peertest"
	"godwit/agent/record"
	"godwit/migration"
	"godwit/transfer/coding"
)

// diskEnds are both ends of a migration whose disks go from paris to rome, where an echo stands for the QEMU that waits.
func diskEnds(t *testing.T) (from *outgoing, to *incoming) {
	t.Helper()
	a := bareAgent(t, &config.Config{Host: "rome"})
	a.ctx, a.feed = t.Context(), newFeed()
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Epoch: 2}
	key := lanes.NewKey()
	to = &incoming{a: a, plan: plan, rec: record.New("rome", plan, time.Now()), work: &destinationWork{
		guest: &Guest{Held: care.Held{Dir: t.TempDir()}}, preparation: Preparation{LaneKey: key}}}
	from = &outgoing{a: a, plan: plan, rec: record.New("paris", plan, time.Now()), work: &sourceWork{laneKey: key}}
	from.link = peertest.Link(t, "paris", "rome", http.NotFoundHandler(), func(s *peer.Stream) { to.serveDisk(s) })
	qemu, err := net.Listen("unix", to.diskSocket())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { qemu.Close() })
	go func() {
		for {
			conn, err := qemu.Accept()
			if err != nil {
				return
			}
			go func() {
				io.Copy(conn, conn) //nolint:errcheck // it ends with either
				conn.Close()
			}()
		}
	}()
	return from, to
}

// TestDiskOverLanes: what the source's QEMU says of a disk reaches the one that waits, by lanes over every path, and its answers come back;
// the work's end ends it.
func TestDiskOverLanes(t *testing.T) {
	from, to := diskEnds(t)
	to.awaitDisks(make([]*fixedDisk, 2))
	way, err := from.openDisk(peertest.Twice, 1, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer way.Close() //nolint:errcheck // it was given up
	text := strings.Repeat("what a disk holds\n", 100_000)
	go coding.Over(way).Write([]byte(text)) //nolint:errcheck // seen by what is read
	got := make([]byte, len(text))
	if _, err := io.ReadFull(way, got); err != nil || string(got) != text {
		t.Fatalf("%d bytes came back: %v", len(got), err)
	}
	if n := way.Stats().LanesLive; n != 2 {
		t.Errorf("%d lanes", n)
	}
	to.work.diskWays.stop()
	if _, err := way.Read(got); err == nil {
		t.Error("it goes on without its other end")
	}
}

// TestDisksThatNobodyAwaits: an agent that was started again, and one that awaits fewer, say so at once: the source need not
// try until its patience ends.
func TestDisksThatNobodyAwaits(t *testing.T) {
	for want, disks := range map[string][]*fixedDisk{"was started again while disks were copied": nil, "disk 1 of 1": {nil}} {
		from, to := diskEnds(t)
		if disks != nil {
			to.awaitDisks(disks)
		}
		way, err := from.openDisk(peertest.Twice, 1, 2, nil)
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		if _, err := way.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), want) || time.Since(begun) > 5*time.Second {
			t.Errorf("after %v: %v, want %q", time.Since(begun), err, want)
		}
		way.Close() //nolint:errcheck // it was refused
	}
}

// TestDisksOfNoMigration: a host that knows nothing of the migration any more, as its agent was started again and undid it, says so at
// once, too.
func TestDisksOfNoMigration(t *testing.T) {
	from, to := diskEnds(t)
	from.link = peertest.Link(t, "paris", "rome", http.NotFoundHandler(), to.a.stream)
	way, err := from.openDisk(peertest.Twice, 0, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer way.Close()                                     //nolint:errcheck // it was refused
	time.AfterFunc(5*time.Second, func() { way.Close() }) //nolint:errcheck // as above
	if _, err := way.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "is not under way on rome") {
		t.Errorf("%v, want that it is not under way", err)
	}
}

// TestDiskLanesAreWatched: a lane of a disk has the whole uplink while the other one that shares it does not work.
func TestDiskLanesAreWatched(t *testing.T) {
	from, to := diskEnds(t)
	to.awaitDisks(make([]*fixedDisk, 1))
	port := make(chan netip.AddrPort, 2)
	from.link = peertest.Link(t, "paris", "rome", nil, func(s *peer.Stream) {
		port <- netip.MustParseAddrPort(s.LocalAddr().String())
		to.serveDisk(s)
	})
	here, there := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.9")
	all := config.LanePaths([]peer.Path{
		{Name: "a-x", Local: here, Remote: there, Rate: 200e6, LocalRate: 300e6, RemoteRate: 200e6, Memory: true},
		{Name: "b-x", Local: here.Next(), Remote: there, Rate: 100e6, LocalRate: 100e6, RemoteRate: 200e6, Memory: true},
	})
	all[0].Local, all[0].Remote = loopback, loopback
	all[1].Local, all[1].Remote = loopback, netip.MustParseAddr("127.0.0.9") // nobody is there
	before := lanes.Pace(all[0], 2, 2)
	way, err := from.openDisk(all, 0, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer way.Close() //nolint:errcheck // it is given up
	at := <-port
	for limit := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		rates := pacedTo(t, at)
		if slices.Contains(rates, lanes.Pace(peer.Path{Rate: 200e6}, 1, 1)) {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("paced to %v bytes/s, at first to %d", rates, before)
		}
	}
}

// pacedTo are the rates of this process's connections to there, as the kernel has them.
func pacedTo(t *testing.T, there netip.AddrPort) (rates []int64) {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range open {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		peer, err := unix.Getpeername(fd)
		if at, ok := peer.(*unix.SockaddrInet4); err != nil || !ok || netip.AddrPortFrom(netip.AddrFrom4(at.Addr), uint16(at.Port)) != there {
			continue
		}
		if n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE); err == nil {
			rates = append(rates, int64(n))
		}
	}
	return rates
}
