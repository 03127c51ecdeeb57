package disks

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"godwit/internal/need"
	"godwit/migration"
	"godwit/transfer"
	"godwit/transfer/nbd"
	"godwit/vm"
)

// fixedSize is of the disk seed of these tests, bytes.
const fixedSize = 1 << 20

// comesFixed has the disk seed of a guest come to rome, which has it read-only, and says where it is written.
func comesFixed(t *testing.T) (from *Source, to *Intake, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "web-2-seed.raw")
	file, err := os.Create(path)
	if err == nil {
		err = file.Truncate(fixedSize)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	from, to = ends(t, []vm.Disk{{ID: "seed", Path: path, Size: fixedSize, ReadOnly: true}}, map[string]*os.File{path: file})
	return from, to, path
}

// copies stands for a QEMU that has copied a disk: so many bytes in the middle, the rest zeros.
func copies(t *testing.T, from *Source, data []byte, at int64) {
	t.Helper()
	opened, err := Open(t.Context(), from.Config)
	if err != nil {
		t.Fatal(err)
	}
	*from = *opened
	t.Cleanup(from.Close)
	qemu, err := net.Dial("unix", from.Socket)
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

// TestReadOnlyDiskComes: what is sent of a read-only disk is in its file, with its holes, and both hosts agree on that;
// when the guest has it nobody writes to it.
func TestReadOnlyDiskComes(t *testing.T) {
	from, to, path := comesFixed(t)
	data := make([]byte, 100_000)
	rand.Read(data) //nolint:errcheck // it does not fail
	copies(t, from, data, 300_000)
	if err := to.Compare(from.Sums()); err != nil {
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
	d := to.disks[0]
	if err := d.Zero(300_000, 100_000); err != nil {
		t.Fatal(err)
	}
	if _, err := d.WriteAt(data[:1], 0); err != nil {
		t.Fatal(err)
	}
	to.Seal()
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

// withoutHoles opens an empty file of a file system that makes no holes.
func withoutHoles(t *testing.T) *os.File {
	t.Helper()
	need.Root(t)
	fs, err := unix.Fsopen("ramfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		t.Fatal(err)
	}
	mount, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0) // it goes with its last file
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(mount)
	fd, err := unix.Openat(mount, "disk", unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "disk")
	t.Cleanup(func() { file.Close() })
	return file
}

// TestZerosWithoutHoles: where the file system has no holes a disk gets zeros where it is to have them, and nowhere else.
func TestZerosWithoutHoles(t *testing.T) {
	const at, length = 1000, 2<<20 + 77
	d, want := &fixedDisk{file: withoutHoles(t)}, bytes.Repeat([]byte{1}, 3<<20)
	if _, err := d.WriteAt(want, 0); err != nil {
		t.Fatal(err)
	}
	if err := d.punch(at, length); !errors.Is(err, syscall.EOPNOTSUPP) {
		t.Fatalf("this file system has holes: %v", err)
	}
	if err := d.Zero(at, length); err != nil {
		t.Fatal(err)
	}
	clear(want[at : at+length])
	got := make([]byte, len(want)+1)
	if n, err := d.ReadAt(got, 0); n != len(want) || !errors.Is(err, io.EOF) || !bytes.Equal(got[:n], want) {
		t.Errorf("%d bytes, %v: the file differs: %v", n, err, !bytes.Equal(got[:n], want))
	}
	readable, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", d.file.Fd())) // which nobody writes to
	if err != nil {
		t.Fatal(err)
	}
	defer readable.Close()
	if d := (&fixedDisk{file: readable}); d.Zero(0, 1) == nil {
		t.Error("zeros that were not written are")
	}
}

// TestReadOnlyDiskThatDiffers: what the destination has and was not sent is an error.
func TestReadOnlyDiskThatDiffers(t *testing.T) {
	for want, spoil := range map[string]func(from *Source, to *Intake){
		"of its disk seed host rome has not what paris sent": func(_ *Source, to *Intake) { to.disks[0].heard.Write([]byte("x")) },
		"host rome has not what paris sent":                  func(from *Source, _ *Intake) { from.sent["seed"].Write([]byte("x")) },
		"disk more host rome has not": func(_ *Source, to *Intake) {
			to.mu.Lock() // a lane may be late
			defer to.mu.Unlock()
			to.disks = append(to.disks, &fixedDisk{id: "more"})
		},
	} {
		from, to, _ := comesFixed(t)
		copies(t, from, []byte("hello"), 0)
		spoil(from, to)
		if err := to.Compare(from.Sums()); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestWritableDisksAreNotCompared: of a disk that the guest writes to nothing is heard.
func TestWritableDisksAreNotCompared(t *testing.T) {
	s := &Source{Config: Config{Disks: []vm.Disk{{ID: "vda"}}}}
	granted := map[string]transfer.Disk{"vda": {}}
	if s.hear(granted); len(s.Sums()) > 0 || granted["vda"].Heard != nil {
		t.Errorf("sums %v, heard %v", s.Sums(), granted["vda"].Heard)
	}
	to := Await(t.Context(), Expected{Plan: migration.Plan{Guest: "web"}, Disks: s.Disks})
	defer to.Stop()
	to.Seal()
	if err := to.Compare(nil); err != nil {
		t.Error(err)
	}
}

// TestHoleInNoOtherFile: a disk whose file is closed while it gets a hole, as its migration is undone, makes none in
// the file that is opened next, which has its descriptor.
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
