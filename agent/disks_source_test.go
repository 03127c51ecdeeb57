package agent

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"godwit/agent/agenttest"
	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/disks"
	"godwit/agent/guests"
	"godwit/agent/lanes"
	"godwit/agent/limits"
	"godwit/agent/peer"
	"godwit/agent/peer/peertest"
	"godwit/agent/record"
	"godwit/agent/talk"
	"godwit/internal/need"
	"godwit/migration"
	"godwit/vm"
	"godwit/vm/qemu"
)

// TestDisksOfAnEarlierAgent: an agent that was started again while disks came says so at once, also where it knows
// nothing of the migration any more: the source need not try until its patience ends.
func TestDisksOfAnEarlierAgent(t *testing.T) {
	a := bareAgent(t, &config.Config{Host: "rome"})
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Epoch: 2}
	m := &incoming{a: a, plan: plan, work: &destinationWork{}}
	for want, takes := range map[string]func(*peer.Stream){"was started again while disks were copied": m.serveDisk, "is not under way on rome": a.stream} {
		begun := time.Now()
		_, err := disks.Open(t.Context(), disks.Config{
			Life: t.Context(), Plan: plan, Disks: make([]vm.Disk, 2), Socket: filepath.Join(t.TempDir(), "out.sock"),
			Link: peertest.Link(t, "paris", "rome", http.NotFoundHandler(), takes), Paths: peertest.Twice, Key: lanes.NewKey(),
		})
		if err == nil || !strings.Contains(err.Error(), want) || time.Since(begun) > 5*time.Second {
			t.Errorf("after %v: %v, want %q", time.Since(begun), err, want)
		}
	}
	from := &outgoing{a: a, plan: plan, link: peertest.Link(t, "paris", "rome", a.peerAPI(), nil)}
	a.incoming = map[string]*incoming{plan.ID: m}
	if err := from.call(t.Context(), "disks", talk.Copied{}, nil); err == nil || !strings.Contains(err.Error(), "was started again") {
		t.Errorf("what it has of them: %v", err)
	}
}

// beginsMirrors is a QEMU whose disks are all zeros.
type beginsMirrors struct {
	vm.Machine
	vm.Blocks
}

func (beginsMirrors) StartMirror(context.Context, vm.Mirror) error { return nil }

// copiesDisks has disk, which is all that the guest has, copied to a host that has files for those.
func copiesDisks(t *testing.T, disk vm.Disk, there []vm.Disk) *outgoing {
	t.Helper()
	public := []config.Uplink{{Name: "public", Address: loopback, Carries: "both"}}
	a := bareAgent(t, &config.Config{Host: "rome", Uplinks: public, Peers: []config.Neighbour{{Host: "rome", Uplinks: public}}, Patience: 5 * time.Second})
	a.ctx = t.Context()
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Epoch: 2, Transfer: "lanes"}
	key := lanes.NewKey()
	to := &incoming{a: a, plan: plan, rec: record.New("rome", plan, time.Now()), work: &destinationWork{preparation: talk.Preparation{LaneKey: key},
		guest: guests.New(care.Held{Dir: t.TempDir(), Description: config.Description{Disks: there}}, beginsMirrors{})}}
	a.incoming = map[string]*incoming{plan.ID: to}
	if err := to.exportDisks(t.Context()); err != nil { // none that QEMU takes in
		t.Fatal(err)
	}
	from := &outgoing{a: a, plan: plan, rec: record.New("paris", plan, time.Now()), work: &sourceWork{laneKey: key, facts: vm.Facts{Disks: []vm.Disk{disk}}},
		guest: guests.New(care.Held{Dir: t.TempDir(), Description: config.Description{Disks: []vm.Disk{{ID: disk.ID}}}}, beginsMirrors{}),
		link:  peertest.Link(t, "paris", "rome", a.peerAPI(), to.serveDisk)}
	if err := from.beginMirrors(t.Context()); err != nil {
		t.Fatal(err)
	}
	return from
}

// TestReadOnlyDisksAreCompared: what QEMU says is read-only the destination compares, and what it then says is what
// comes of it.
func TestReadOnlyDisksAreCompared(t *testing.T) {
	seed := vm.Disk{ID: "seed", Size: 1 << 20, ReadOnly: true}
	for want, has := range map[string][]vm.Disk{"": {seed}, "of its disk more host rome has not what paris sent": {seed, {ID: "more", Size: 1 << 20, ReadOnly: true}}} {
		from := copiesDisks(t, seed, has)
		if err := from.compareCopied(t.Context()); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v, want %q", err, want)
		}
		from.work.mirrors.Close()
	}
}

// TestDisksNotGrantedByWhatIsGone: where disks are not granted since the QEMU that waited for them is gone, that is the
// reason, and not what became of the ways to it; a destination that gives none leaves ours.
func TestDisksNotGrantedByWhatIsGone(t *testing.T) {
	gone := &migration.Problem{Code: migration.CodeHypervisor, Text: "guest web did not arrive whole on rome: its QEMU was killed"}
	for name, c := range map[string]struct {
		broke *migration.Problem
		code  migration.Code
		words []string
	}{
		"its QEMU is gone": {gone, migration.CodeHypervisor, []string{"migrate guest web: rome has given it up: " + gone.Text + "; here: rome does not grant its disks: "}},
		"it says nothing":  {nil, migration.CodePath, []string{"migrate guest web: rome does not grant its disks: "}},
	} {
		public := []config.Uplink{{Name: "public", Address: loopback, Carries: "both"}}
		a := bareAgent(t, &config.Config{Host: "rome", Uplinks: public, Peers: []config.Neighbour{{Host: "rome", Uplinks: public}}, Patience: 5 * time.Second})
		a.ctx = t.Context()
		plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Epoch: 2, Transfer: "lanes"}
		to := &incoming{a: a, plan: plan, rec: record.New("rome", plan, time.Now()), work: &destinationWork{}}
		if c.broke != nil {
			to.broke.Store(c.broke)
		}
		a.incoming = map[string]*incoming{plan.ID: to}
		from := &outgoing{a: a, plan: plan, rec: record.New("paris", plan, time.Now()), work: &sourceWork{laneKey: lanes.NewKey()},
			guest: guests.New(care.Held{Dir: t.TempDir(), Description: config.Description{Disks: []vm.Disk{{ID: "data"}}}}, beginsMirrors{}),
			link:  peertest.Link(t, "paris", "rome", a.peerAPI(), to.serveDisk)}
		agenttest.Refused(t, name, from.beginMirrors(t.Context()), c.code, c.words...)
	}
}

// TestWritableDisksAreNotCompared: a destination of an earlier release is asked nothing that it does not know.
func TestWritableDisksAreNotCompared(t *testing.T) {
	m := &outgoing{a: bareAgent(t, &config.Config{}), link: peertest.Link(t, "paris", "rome", http.NotFoundHandler(), nil), work: &sourceWork{mirrors: &disks.Source{}}}
	if err := m.compareCopied(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestDisksHaveTime: slow storage may take all of a flip's time to flush disks, and memory has its own to come to rest
// after that.
func TestDisksHaveTime(t *testing.T) {
	m := &outgoing{work: &sourceWork{mirrors: &disks.Source{}}}
	if got := m.limitOf(migration.Flip).For; got < limits.Flip.For+limits.Settle.For {
		t.Errorf("%v", got)
	}
}

// TestTakesDisks: a guest with disks does not go to an agent of an earlier release, which waits for none of their
// lanes, or would have QEMU write to a read-only one: it is refused in check, and not after the time in which a disk is
// to be granted.
func TestTakesDisks(t *testing.T) {
	for name, c := range map[string]struct {
		disks []vm.Disk
		takes bool
		want  string
	}{
		"no disk":     {nil, false, ""},
		"it takes":    {[]vm.Disk{{ID: "vda"}, {ID: "seed", ReadOnly: true}}, true, ""},
		"it does not": {[]vm.Disk{{ID: "vda"}, {ID: "seed", ReadOnly: true}}, false, "host rome refuses guest web: its agent is of an earlier release, and takes disks (vda, seed) in otherwise than they are sent; bring it to the release of paris"},
	} {
		plan := migration.Plan{Guest: "web", From: "paris", To: "rome"}
		m := &outgoing{plan: plan, work: &sourceWork{facts: vm.Facts{Disks: c.disks}, accepted: talk.Acceptance{ReadOnly: c.takes}, offer: talk.Offer{Plan: plan}}}
		if err := m.takesDisks(); c.want == "" && err != nil || c.want != "" && (err == nil || err.Error() != c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestStartCommandOfReadOnlyDisk: a start command is given the file of a read-only disk, whatever the device by which
// its guest has it, and one that has it writable, or has another file read-only, is refused.
func TestStartCommandOfReadOnlyDisk(t *testing.T) {
	need.QEMU(t)
	const node = "driver=raw,node-name=seed,file.driver=file,file.filename="
	for name, c := range map[string]struct {
		words []string // of the disk
		want  string
	}{
		"virtio":     {[]string{"-blockdev", node + "{disk0},read-only=on", "-device", "virtio-blk-pci,drive=seed"}, ""},
		"ide-cd":     {[]string{"-blockdev", node + "{disk0},read-only=on", "-device", "ide-cd,drive=seed"}, ""},
		"scsi-cd":    {[]string{"-blockdev", node + "{disk0},read-only=on", "-device", "virtio-scsi-pci", "-device", "scsi-cd,drive=seed"}, ""},
		"by -drive":  {[]string{"-drive", "if=none,id=seed,media=cdrom,format=raw,file={disk0}", "-device", "ide-cd,drive=seed"}, ""},
		"writable":   {[]string{"-blockdev", node + "{disk0}", "-device", "virtio-blk-pci,drive=seed"}, "has its disk seed with read-only=off, the guest with read-only=on; write that"},
		"its own CD": {[]string{"-blockdev", node + "{dir}/own.iso,read-only=on", "-device", "ide-cd,drive=seed"}, "write {disk0} there"},
	} {
		t.Run(name, func(t *testing.T) {
			m := startedBy(t, c.words)
			machine, err := m.startQEMU(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer machine.Kill() //nolint:errcheck // nothing else ends it
			if err := m.compareMachines(t.Context(), machine); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// startedBy is a guest on its way here with a read-only disk, by a start command with these words for that.
func startedBy(t *testing.T, words []string) *incoming {
	t.Helper()
	a := bareAgent(t, &config.Config{Host: "rome"})
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Epoch: 2}
	d := config.Description{Name: "web", Memory: 32 << 20, Disks: []vm.Disk{{ID: "seed", Path: "/images/seed.qcow2", Format: "qcow2", ReadOnly: true}}}
	d.Start = append([]string{qemu.Program, "-nodefaults", "-display", "none", "-machine", "q35", "-accel", "tcg", "-m", "{memory}",
		"-qmp", "unix:{qmp},server=on,wait=off", "-S", "-incoming", "defer"}, words...)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "own.iso"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	m := &incoming{a: a, plan: plan, rec: record.New("rome", plan, time.Now()), work: &destinationWork{
		guest:       guests.New(care.Held{Dir: dir, Description: d}, nil),
		preparation: talk.Preparation{Plan: plan, Description: d, Facts: vm.Facts{Disks: []vm.Disk{{ID: "seed", Size: 1 << 20, ReadOnly: true}}}}}}
	if err := m.makeDisks(); err != nil {
		t.Fatal(err)
	}
	return m
}

// lastOfDisks is a QEMU that can be stopped, and whose mirrors say how long they have to get in sync.
type lastOfDisks struct {
	vm.Machine
	vm.Blocks
	have time.Duration
}

func (*lastOfDisks) Courtesy(bool) (int, error)             { return 0, nil }
func (*lastOfDisks) Stop(context.Context) error             { return nil }
func (*lastOfDisks) Events(context.Context) <-chan vm.Event { return nil }

func (l *lastOfDisks) FinishMirrors(ctx context.Context) error {
	until, _ := ctx.Deadline()
	l.have = time.Until(until)
	return errors.New("out of sync")
}

// TestDisksHaveTheirBudget: disks have as long as the downtime budget to get in sync, also where that is longer than a
// pause takes else.
func TestDisksHaveTheirBudget(t *testing.T) {
	machine := &lastOfDisks{}
	plan := migration.Plan{Guest: "web", To: "oslo", Downtime: 30 * time.Second}
	m := &outgoing{a: between(t), plan: plan, guest: guests.New(care.Held{}, machine), rec: record.New("rome", plan, time.Now()), work: &sourceWork{}}
	m.work.mirrors = &disks.Source{Config: disks.Config{Plan: plan, Blocks: machine, Farewells: &m.work.farewells}}
	m.a.ctx = t.Context()
	if err := m.perform(t.Context(), migration.Pause); err == nil || machine.have < plan.Downtime {
		t.Errorf("they have %v: %v", machine.have, err)
	}
	m.work.farewells.Wait()
}
