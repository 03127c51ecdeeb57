package qemu_test

import (
	"bytes"
	"crypto/rand"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"godwit/transfer"
	"godwit/transfer/nbd"
	"godwit/vm"
	"godwit/vm/qemu"
)

// inFile is a store of tests, a file.
type inFile struct{ *os.File }

func (f inFile) Zero(at, length int64) error {
	return syscall.Fallocate(int(f.Fd()), 3, at, length) // FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
}

// TestMirrorOfAReadOnlyDisk: QEMU copies a disk that nobody may write to as any other, of whatever format it is, to a
// file that no QEMU serves.
func TestMirrorOfAReadOnlyDisk(t *testing.T) {
	data := make([]byte, diskData)
	rand.Read(data)
	raw := sparse(t, data, 20<<20)
	top := filepath.Join(t.TempDir(), "top.qcow2")
	for _, words := range [][]string{
		{"qemu-img", "create", "-q", "-f", "qcow2", "-b", raw, "-F", "raw", top},
		{"qemu-io", "-c", "write -q -P 7 21M 1M", top},
	} {
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			t.Skipf("%v: %s, %v", words, out, err)
		}
	}
	for _, disk := range []vm.Disk{
		{ID: "seed", Path: raw, Format: "raw", ReadOnly: true},
		{ID: "base", Path: top, Format: "qcow2", ReadOnly: true},
	} {
		t.Run(disk.Format, func(t *testing.T) { mirrorReadOnly(t, disk, data) })
	}
}

func mirrorReadOnly(t *testing.T, disk vm.Disk, data []byte) {
	spec := firmware(t)
	spec.Disks = []vm.Disk{disk}
	path := copyReadOnly(t, start(t, spec), disk)
	want := make([]byte, diskSize)
	copy(want[20<<20:], data)
	if disk.Format == "qcow2" {
		copy(want[21<<20:], bytes.Repeat([]byte{7}, 1<<20))
	}
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the copy differs from the disk (%v)", err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if used := info.Sys().(*syscall.Stat_t).Blocks * 512; used > 2*diskData {
		t.Errorf("the copy takes %d bytes for %d of data", used, diskData)
	}
}

// copyReadOnly has QEMU copy its disk to a new file, which it returns.
func copyReadOnly(t *testing.T, source *qemu.Process, disk vm.Disk) (path string) {
	t.Helper()
	f, err := os.OpenFile(sparse(t, nil, 0), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	near, far := net.Pipe()
	var heard, sent nbd.Digest
	served := make(chan error, 1)
	go func() { served <- transfer.ServeDisk(far, disk.ID, diskSize, inFile{f}, &heard) }()
	granted, err := transfer.AskDisk(t.Context(), near, disk.ID)
	if err != nil {
		t.Fatal(err)
	}
	granted.Heard = &sent
	socket := filepath.Join(t.TempDir(), "copies.sock")
	forward, err := transfer.ListenNBD(t.Context(), socket, map[string]transfer.Disk{disk.ID: granted})
	if err != nil {
		t.Fatal(err)
	}
	defer forward.Close()
	if err := source.StartMirror(t.Context(), vm.Mirror{Disk: disk.ID, Socket: socket}); err != nil {
		t.Fatal(err)
	}
	awaitMirror(t, source, func(s vm.MirrorState) bool { return s.Ready })
	if !bytes.Equal(heard.Sum(), sent.Sum()) {
		t.Error("another was heard than was sent")
	}
	if err := source.FinishMirrors(t.Context()); err != nil {
		t.Fatal(err)
	}
	noMirrors(t, source)
	if err := <-served; err != nil {
		t.Error(err)
	}
	return f.Name()
}
