package agent

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/peer"
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
	key := newLaneKey()
	to = &incoming{a: a, plan: plan, rec: record.New("rome", plan, time.Now()), work: &destinationWork{
		guest: &Guest{Held: care.Held{Dir: t.TempDir()}}, preparation: Preparation{LaneKey: key}}}
	from = &outgoing{a: a, plan: plan, rec: record.New("paris", plan, time.Now()), work: &sourceWork{laneKey: key}}
	from.link = linkedFor(t, "paris", "rome", http.NotFoundHandler(), func(s *peer.Stream) { to.serveDisk(s) })
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

var loopbackTwice = []peer.Path{{Name: "a", Local: loopback, Remote: loopback}, {Name: "b", Local: loopback, Remote: loopback}}

// TestDiskOverLanes: what the source's QEMU says of a disk reaches the one that waits, by lanes over every path, and its answers come back;
// the work's end ends it.
func TestDiskOverLanes(t *testing.T) {
	from, to := diskEnds(t)
	to.awaitDisks(make([]*fixedDisk, 2))
	way, err := from.openDisk(loopbackTwice, 1, 2, nil)
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
		way, err := from.openDisk(loopbackTwice, 1, 2, nil)
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
	from.link = linkedFor(t, "paris", "rome", http.NotFoundHandler(), to.a.stream)
	way, err := from.openDisk(loopbackTwice, 0, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer way.Close()                                     //nolint:errcheck // it was refused
	time.AfterFunc(5*time.Second, func() { way.Close() }) //nolint:errcheck // as above
	if _, err := way.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "is not under way on rome") {
		t.Errorf("%v, want that it is not under way", err)
	}
}
