package agent

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/peer"
	"godwit/agent/peer/peertest"
	"godwit/agent/record"
	"godwit/internal/need"
	"godwit/migration"
	"godwit/policy"
	"godwit/transfer"
	"godwit/transfer/nbd"
	"godwit/vm"
	"godwit/vm/qemu"
)

// fixedSize is of the disk seed of these tests, bytes.
const fixedSize = 1 << 20

// comesFixed has the disk seed of a guest come to rome, which has it read-only, and says where it is written.
func comesFixed(t *testing.T) (from *outgoing, to *incoming, path string) {
	t.Helper()
	from, to = diskEnds(t)
	path = filepath.Join(t.TempDir(), "web-2-seed.raw")
	file, err := makeSparse(path, fixedSize)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	to.awaitDisks([]*fixedDisk{{id: "seed", size: fixedSize, file: file}})
	to.a.incoming = map[string]*incoming{to.plan.ID: to}
	from.a.config.Patience = 5 * time.Second
	from.guest = &Guest{Held: care.Held{Description: config.Description{Disks: []vm.Disk{{ID: "seed"}}}}}
	from.work.facts.Disks = []vm.Disk{{ID: "seed", Size: fixedSize, ReadOnly: true}}
	from.link = peertest.Link(t, "paris", "rome", to.a.peerAPI(), func(s *peer.Stream) { to.serveDisk(s) })
	return from, to, path
}

// copies stands for a QEMU that has copied a disk: so many bytes in the middle, the rest zeros.
func copies(t *testing.T, from *outgoing, data []byte, at int64) {
	t.Helper()
	disks, ways, err := from.askDisks(t.Context(), peertest.Twice)
	if err != nil {
		t.Fatal(err)
	}
	sent := from.hearDisks(disks)
	socket := filepath.Join(t.TempDir(), "out.sock")
	forward, err := transfer.ListenNBD(t.Context(), socket, disks)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { forward.Close() })
	from.work.mirrors = &mirrors{forward: forward, ways: ways, sent: sent, seeding: policy.Seeding{}}
	qemu, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { qemu.Close() })
	if e, err := nbd.Ask(qemu, "seed"); err != nil || e.Size != fixedSize {
		t.Fatalf("%+v, %v", e, err)
	}
	asks(t, qemu, 6, 0, fixedSize, nil) // NBD_CMD_WRITE_ZEROES
	asks(t, qemu, 1, at, int64(len(data)), data)
}

// asks makes a request of NBD that must be done.
func asks(t *testing.T, qemu net.Conn, kind uint16, at, length int64, data []byte) {
	t.Helper()
	ask := binary.BigEndian.AppendUint32(nil, 0x25609513)
	ask = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(ask, 0), kind)
	ask = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(ask, 1), uint64(at))
	if _, err := qemu.Write(append(binary.BigEndian.AppendUint32(ask, uint32(length)), data...)); err != nil {
		t.Fatal(err)
	}
	reply := make([]byte, 16)
	if _, err := io.ReadFull(qemu, reply); err != nil || binary.BigEndian.Uint32(reply[4:]) != 0 {
		t.Fatalf("request %d: %x, %v", kind, reply, err)
	}
}

// TestReadOnlyDiskComes: what is sent of a read-only disk is in its file, with its holes, and both hosts agree on that; when the
// guest has it nobody writes to it.
func TestReadOnlyDiskComes(t *testing.T) {
	from, to, path := comesFixed(t)
	data := make([]byte, 100_000)
	rand.Read(data) //nolint:errcheck // it does not fail
	copies(t, from, data, 300_000)
	if err := from.compareCopied(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := make([]byte, fixedSize)
	copy(want[300_000:], data)
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the file differs (%v)", err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if used := info.Sys().(*syscall.Stat_t).Blocks * 512; used > 200_000 {
		t.Errorf("it takes %d bytes", used)
	}
	d := to.work.diskWays.disks[0]
	if err := d.Zero(300_000, 100_000); err != nil {
		t.Fatal(err)
	}
	if _, err := d.WriteAt(data[:1], 0); err != nil {
		t.Fatal(err)
	}
	to.work.diskWays.seal()
	if _, err := d.WriteAt(data, 0); err == nil {
		t.Error("it is written to beside its guest")
	}
	if d.Zero(0, 1) == nil {
		t.Error("it is made a hole beside its guest")
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, append(data[:1:1], make([]byte, fixedSize-1)...)) {
		t.Errorf("zeros are none (%v)", err)
	}
}

// TestReadOnlyDiskThatDiffers: where the destination has not what was sent, or its agent was started again meanwhile, memory is not
// copied.
func TestReadOnlyDiskThatDiffers(t *testing.T) {
	for want, spoil := range map[string]func(from *outgoing, to *incoming){
		"of its disk seed host rome has not what paris sent": func(_ *outgoing, to *incoming) { to.work.diskWays.disks[0].heard.Write([]byte("x")) },
		"host rome has not what paris sent":                  func(from *outgoing, _ *incoming) { from.work.mirrors.sent["seed"].Write([]byte("x")) },
		"disk more host rome has not": func(_ *outgoing, to *incoming) {
			to.work.diskWays.mu.Lock() // a lane may be late
			defer to.work.diskWays.mu.Unlock()
			to.work.diskWays.disks = append(to.work.diskWays.disks, &fixedDisk{id: "more"})
		},
		"was started again": func(_ *outgoing, to *incoming) {
			to.mu.Lock() // the same
			defer to.mu.Unlock()
			to.work.diskWays = nil
		},
	} {
		from, to, _ := comesFixed(t)
		copies(t, from, []byte("hello"), 0)
		spoil(from, to)
		if err := from.compareCopied(t.Context()); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestWritableDisksAreNotCompared: a destination of an earlier release is asked nothing that it does not know.
func TestWritableDisksAreNotCompared(t *testing.T) {
	from, _ := diskEnds(t)
	from.link = peertest.Link(t, "paris", "rome", http.NotFoundHandler(), nil)
	disks := map[string]transfer.Disk{"vda": {}}
	from.work.facts.Disks = []vm.Disk{{ID: "vda"}}
	from.work.mirrors = &mirrors{sent: from.hearDisks(disks)}
	if err := from.compareCopied(t.Context()); err != nil || disks["vda"].Heard != nil {
		t.Errorf("%v, heard %v", err, disks["vda"].Heard)
	}
}

// TestTakesDisks: a guest with disks does not go to an agent of an earlier release, which waits for none of their lanes, or would have QEMU
// write to a read-only one: it is refused in check, and not after the time in which a disk is to be granted.
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
		m := &outgoing{plan: plan, work: &sourceWork{facts: vm.Facts{Disks: c.disks}, accepted: Acceptance{ReadOnly: c.takes}, offer: Offer{Plan: plan}}}
		if err := m.takesDisks(); c.want == "" && err != nil || c.want != "" && (err == nil || err.Error() != c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestStartCommandOfReadOnlyDisk: a start command is given the file of a read-only disk, whatever the device by which its guest has
// it, and one that has it writable, or has another file read-only, is refused.
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
	if err := os.WriteFile(filepath.Join(dir, "own.iso"), make([]byte, fixedSize), 0o600); err != nil {
		t.Fatal(err)
	}
	m := &incoming{a: a, plan: plan, rec: record.New("rome", plan, time.Now()), work: &destinationWork{
		guest:       &Guest{Held: care.Held{Dir: dir, Description: d}},
		preparation: Preparation{Plan: plan, Description: d, Facts: vm.Facts{Disks: []vm.Disk{{ID: "seed", Size: fixedSize, ReadOnly: true}}}}}}
	if err := m.makeDisks(); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestHoleInNoOtherFile: a disk whose file is closed while it gets a hole, as its migration is undone, makes none in the file that
// is opened next, which has its descriptor.
func TestHoleInNoOtherFile(t *testing.T) {
	dir, full := t.TempDir(), bytes.Repeat([]byte{1}, 64<<10)
	disk, other := filepath.Join(dir, "disk"), filepath.Join(dir, "other")
	for _, path := range []string{disk, other} {
		if err := os.WriteFile(path, full, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	open := func(path string) *os.File {
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		return file
	}
	for n := range 20_000 {
		d, ended := &fixedDisk{file: open(disk)}, make(chan struct{})
		go func() {
			defer close(ended)
			for d.Zero(0, int64(len(full))) == nil {
				d.file.WriteAt(full[:1], 0) //nolint:errcheck // Zero finds out as well
			}
		}()
		d.file.Close()
		next, first := open(other), make([]byte, 1)
		<-ended
		if _, err := next.ReadAt(first, 0); err != nil || first[0] != 1 {
			t.Fatalf("after %d disks the other file has a hole, %v", n, err)
		}
		next.Close()
	}
}
