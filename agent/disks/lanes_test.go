package disks

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"godwit/agent/config"
	"godwit/agent/lanes"
	"godwit/agent/peer"
	"godwit/agent/peer/peertest"
	"godwit/migration"
	"godwit/transfer/coding"
	"godwit/transfer/pipe"
	"godwit/vm"
)

// ends are both ends of a migration with these disks, which go from paris to rome, where an echo stands for the QEMU
// that waits.
func ends(t *testing.T, all []vm.Disk, files map[string]*os.File) (from *Source, to *Intake) {
	t.Helper()
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Epoch: 2}
	key, dir, quiet := lanes.NewKey(), t.TempDir(), slog.New(slog.DiscardHandler)
	to = Await(t.Context(), Expected{Plan: plan, Key: key, Disks: all, Files: files, Socket: filepath.Join(dir, "disks-in.sock"), Log: quiet})
	from = &Source{Config: Config{
		Life: t.Context(), Plan: plan, Disks: all, Socket: filepath.Join(dir, "disks-out.sock"), Paths: peertest.Twice, Key: key, Log: quiet,
		Link: peertest.Link(t, "paris", "rome", http.NotFoundHandler(), serve(to)),
	}}
	qemu, err := net.Listen("unix", to.Socket)
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

// serve is what an agent does with disks' lanes.
func serve(to *Intake) func(*peer.Stream) {
	return func(s *peer.Stream) {
		if err := to.Serve(s, s.Header.Number); err != nil {
			lanes.Refuse(s, err.Error())
		}
	}
}

// TestDiskOverLanes: what the source's QEMU says of a disk reaches the one that waits, by lanes over every path, and
// its answers come back; the work's end ends it.
func TestDiskOverLanes(t *testing.T) {
	from, to := ends(t, make([]vm.Disk, 2), nil)
	way, err := from.open(1)
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
	to.Stop()
	if _, err := way.Read(got); err == nil {
		t.Error("it goes on without its other end")
	}
}

// TestDiskThatNobodyAwaits: a host that awaits fewer says so at once: the source need not try until its patience ends.
func TestDiskThatNobodyAwaits(t *testing.T) {
	from, _ := ends(t, make([]vm.Disk, 1), nil)
	from.Disks = make([]vm.Disk, 2)
	way, err := from.open(1)
	if err != nil {
		t.Fatal(err)
	}
	defer way.Close() //nolint:errcheck // it was refused
	begun, want := time.Now(), "disk 1 of 1"
	if _, err := way.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), want) || time.Since(begun) > 5*time.Second {
		t.Errorf("after %v: %v, want %q", time.Since(begun), err, want)
	}
}

// TestDisksThatAreNotGranted: nothing is sent of a guest of which a disk is not granted, or where QEMU finds no way to
// them, and the first reason is told.
func TestDisksThatAreNotGranted(t *testing.T) {
	fixed := vm.Disk{ID: "seed", Path: "seed.raw", Size: 4096, ReadOnly: true}
	from, _ := ends(t, []vm.Disk{fixed}, nil)
	from.Disks = []vm.Disk{fixed, {ID: "more"}}
	if _, err := Open(t.Context(), from.Config); err == nil || !strings.Contains(err.Error(), "rome does not grant its disks") || !strings.Contains(err.Error(), "disk 1 of 1") {
		t.Errorf("a disk that is not awaited: %v", err)
	}
	from, _ = ends(t, []vm.Disk{fixed}, nil)
	from.Socket = filepath.Join(t.TempDir(), "none", "out.sock")
	if _, err := Open(t.Context(), from.Config); err == nil {
		t.Error("QEMU has no way")
	}
}

// TestWayThatEnds: why a way ended that should not have is told with what it brings down.
func TestWayThatEnds(t *testing.T) {
	from, _, _ := comesFixed(t)
	if err := from.Err(); err != nil {
		t.Errorf("before it is open: %v", err)
	}
	copies(t, from, []byte("hello"), 0)
	if err := from.Err(); err != nil {
		t.Fatal(err)
	}
	qemu, err := net.Dial("unix", from.Socket)
	if err != nil {
		t.Fatal(err)
	}
	qemu.Close() // before it has said which disk it means
	for limit := time.Now().Add(10 * time.Second); from.Err() == nil; time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("it has not ended")
		}
	}
	why := from.Err().Error()
	if err := from.broke("seed", "no answer"); !strings.Contains(err.Error(), "the copy of seed to rome broke: no answer; "+why) {
		t.Error(err)
	}
	from.Blocks, from.Patience = slowToBegin{fails: errors.New("no such disk")}, time.Minute
	if err := from.Begin(t.Context()); err == nil || !strings.Contains(err.Error(), "no such disk ("+why+")") {
		t.Error(err)
	}
}

// TestDiskLanesAreWatched: a lane of a disk has the whole uplink while the other one that shares it does not work.
func TestDiskLanesAreWatched(t *testing.T) {
	from, to := ends(t, make([]vm.Disk, 1), nil)
	port := make(chan netip.AddrPort, 2)
	from.Link = peertest.Link(t, "paris", "rome", nil, func(s *peer.Stream) {
		port <- netip.MustParseAddrPort(s.LocalAddr().String())
		serve(to)(s)
	})
	here, there := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.9")
	all := config.LanePaths([]peer.Path{
		{Name: "a-x", Local: here, Remote: there, Rate: 200e6, LocalRate: 300e6, RemoteRate: 200e6, Memory: true},
		{Name: "b-x", Local: here.Next(), Remote: there, Rate: 100e6, LocalRate: 100e6, RemoteRate: 200e6, Memory: true},
	})
	all[0].Local, all[0].Remote = peertest.Loopback, peertest.Loopback
	all[1].Local, all[1].Remote = peertest.Loopback, netip.MustParseAddr("127.0.0.9") // nobody is there
	before := lanes.Pace(all[0], 2, 2)
	from.Paths = all
	way, err := from.open(0)
	if err != nil {
		t.Fatal(err)
	}
	defer way.Close() //nolint:errcheck // it is given up
	at := <-port
	for limit := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		rates := pacedTo(t, at)
		if slices.Contains(rates, lanes.Pace(peer.Path{Rate: 200e6}, 1, 1)) {
			break
		}
		if time.Now().After(limit) {
			t.Fatalf("paced to %v bytes/s, at first to %d", rates, before)
		}
	}
	from.ways = []*pipe.Source{way}
	if got := from.Working(all); len(got) != 1 || got[0].Name != "a-x" || got[0].Rate != 200e6 {
		t.Errorf("lanes work over %+v", got)
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

// TestGrantedBesideOneThatIsNot: where one disk is not granted, the ways of those that are granted end: nobody else
// would end them as long as the migration lives.
func TestGrantedBesideOneThatIsNot(t *testing.T) {
	fixed := vm.Disk{ID: "seed", Path: "seed.raw", Size: 4096, ReadOnly: true}
	from, _ := ends(t, []vm.Disk{fixed}, nil)
	from.Disks = []vm.Disk{fixed, {ID: "more"}}
	if _, err := from.ask(t.Context()); err == nil {
		t.Fatal("it is granted")
	}
	select {
	case <-from.ways[0].Done():
	case <-time.After(20 * time.Second):
		t.Error("the way of the granted one goes on")
	}
}
