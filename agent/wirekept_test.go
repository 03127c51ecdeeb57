package agent

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/guests"
	"godwit/agent/journal"
	"godwit/agent/record"
	"godwit/agent/written"
	"godwit/migration"
	"godwit/transfer/nbd"
	"godwit/vm"
)

// TestWireTold: often enough, and of a long copy not thousands of times.
func TestWireTold(t *testing.T) {
	begun := time.Unix(1000, 0)
	told, records := wireTold{begun: begun}, 0
	for at := time.Duration(0); at < 10*time.Hour; at += 200 * time.Millisecond {
		last := told.last
		if told.due(begun.Add(at)) {
			records++
		} else if lost := begun.Add(at).Sub(last); lost > max(wireLost, at/wireLostShare) {
			t.Fatalf("after %v nothing was written down for %v", at, lost)
		}
	}
	if records > 250 {
		t.Errorf("%d records", records)
	}
}

// quiet is a machine of which nothing is heard.
type quiet struct{ gone }

func (quiet) Events(context.Context) <-chan vm.Event { return nil }

// TestWireOutlivesTheSource: what a copy had sent counts on for the agent that is started again after
// one that was killed in it, in its progress, in the next try and in that one's end.
func TestWireOutlivesTheSource(t *testing.T) {
	a, _ := served(t)
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Epoch: 2}
	dir := t.TempDir()
	log, err := journal.Create(dir, plan.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close() //nolint:errcheck // the test ends
	m := &outgoing{a: a, plan: plan, state: sourceDoing(t, migration.CopyMemory), log: log, work: &sourceWork{}, rec: record.New("paris", plan, time.Now())}
	m.rec.Edit(func(r *record.Report) { r.WireBytes = map[string]int64{"public-public": 70e6} }) // as if meters had counted it
	m.beginWire()
	m.keepWire()

	var j written.Source
	if err := journal.Read(dir, plan.ID, &j); err != nil {
		t.Fatal(err)
	}
	if j.State.Doing() != migration.CopyMemory || j.Plan.ID != plan.ID {
		t.Errorf("the journal says %+v", j)
	}
	again := &outgoing{a: a, plan: plan, state: j.State, log: log, work: &sourceWork{}, rec: record.New("paris", plan, time.Now()), kept: j.Report, found: true}
	again.rec.Recall(j.Report)
	for _, moment := range []string{"found again", "begun again"} {
		if rep := again.rec.Snapshot(); rep.WireBytes["public-public"] != 70e6 || rep.Guest != "web" || rep.Rounds != 0 {
			t.Errorf("%s: the report is %+v", moment, rep)
		}
		if got := again.wireSince(); got["public-public"] != 70e6 {
			t.Errorf("%s: sent so far %v", moment, got)
		}
		again.beginWire()
		again.countWire()
		if got := again.rec.Snapshot().WireBytes; got["public-public"] != 70e6 {
			t.Errorf("%s: counted %v", moment, got)
		}
		again.guest = guests.New(care.Held{}, quiet{gone{done: make(chan struct{})}})
		again.newEpoch(migration.Source{Course: migration.Forward, Epoch: 3, Tries: 1})
	}
}

// TestDiskBytesOutliveTheSource: what disks' streams had taken is known to the agent that is started again after one that
// was killed in their copy, as long as nothing is sent again; it is no more than all that had left.
func TestDiskBytesOutliveTheSource(t *testing.T) {
	seed := vm.Disk{ID: "seed", Size: 1 << 20, ReadOnly: true}
	for _, left := range []int64{70e6, 1, 0} { // by the uplinks; 0: it was not counted
		m := copiesDisks(t, seed, []vm.Disk{seed})
		qemu, err := net.Dial("unix", filepath.Join(m.guest.Held().Dir, "disks-out.sock"))
		if err != nil {
			t.Fatal(err)
		}
		defer qemu.Close()
		if _, err := nbd.Ask(qemu, "seed"); err != nil {
			t.Fatal(err)
		}
		write := append(binary.BigEndian.AppendUint32([]byte{0x25, 0x60, 0x95, 0x13, 0, 0, 0, 1, 23: 0}, 512), make([]byte, 512)...) // NBD_CMD_WRITE
		if _, err := qemu.Write(write); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(qemu, make([]byte, 16)); err != nil { // its answer
			t.Fatal(err)
		}
		m.work.mirrors.Close() // all is counted
		want := m.work.mirrors.Carried()
		if left != 0 {
			m.rec.Edit(func(r *record.Report) { r.WireBytes = map[string]int64{"public-public": left} })
			want = min(want, left)
		}
		again := record.New("paris", m.plan, time.Now())
		again.Recall(m.sentSoFar())
		rep := again.Snapshot()
		if anew := rep.Anew(m.plan); want == 0 || rep.DiskBytes != want || anew.DiskBytes != 0 {
			t.Errorf("%d had left: %d of disks, want %d; another try begins with %d", left, rep.DiskBytes, want, anew.DiskBytes)
		}
	}
}

// TestLimitOutlivesTheSource: a migration that was limited as it copied is so for the agent that is started again after
// one that was killed in it, also where what was sent is not written down again yet.
func TestLimitOutlivesTheSource(t *testing.T) {
	a := startedAgain(t)
	rememberedGuest(t, a)
	j := journalled("m-00000001", "berlin", sourceDoing(t, migration.CopyMemory))
	j.Plan.Bandwidth = 80e6
	path := journalOf(t, a, j.Plan.ID, j)
	log, err := journal.Open(filepath.Dir(path), j.Plan.ID, &j)
	if err != nil {
		t.Fatal(err)
	}
	killed := &outgoing{a: a, plan: j.Plan, state: j.State, log: log, work: &sourceWork{}, rec: record.New("rome", j.Plan, a.clock()), limited: j.Plan.Bandwidth}
	killed.beginWire()
	for _, bits := range []int64{8e6, 0, 16e6} {
		killed.bandwidth.Set(bits)
		killed.keepWire()
		if err := journal.Read(filepath.Dir(path), j.Plan.ID, &j); err != nil || j.Plan.Bandwidth != bits {
			t.Errorf("limited to %d bit/s; the journal has %d: %v", bits, j.Plan.Bandwidth, err)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	if got := killed.carried(config.Neighbour{}); got != 16e6 {
		t.Errorf("its next try is foreseen by %d bit/s", got)
	}
}
