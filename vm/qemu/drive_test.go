package qemu_test

import (
	"bytes"
	"crypto/rand"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"godwit/vm"
	"godwit/vm/qemu"
)

// TestDriveMoves: a disk by -drive, whose node has a name of QEMU's own, is copied to one that waits by -drive.
func TestDriveMoves(t *testing.T) {
	data := make([]byte, diskData)
	rand.Read(data) //nolint:errcheck // it does not fail
	scsi := []string{"-device", "virtio-scsi-pci", "-device", "scsi-hd,drive=system"}
	for id, words := range map[string][]string{
		"system":  slices.Concat([]string{"-drive", "if=none,id=system,format=raw,file="}, scsi),
		"virtio0": {"-drive", "if=virtio,format=raw,file="}, // by QEMU's count of them
	} {
		t.Run(id, func(t *testing.T) { movesDrive(t, id, words, data) })
	}
}

func movesDrive(t *testing.T, id string, drive []string, data []byte) {
	words := func(path string) []string {
		drive := slices.Clone(drive)
		drive[1] += path
		return slices.Concat([]string{"-machine", "q35", "-accel", "tcg", "-m", "32"}, drive)
	}
	disk := vm.Disk{ID: id, Path: sparse(t, data, 20<<20), Format: "raw", Size: diskSize}
	source := theirs(t, words(disk.Path)...)
	has(t, source, disk)
	from := disk.Path
	disk.Path = sparse(t, nil, 0)
	c := waiting(t)
	c.Words = slices.Concat([]string{qemu.Program, "-nodefaults", "-display", "none", "-qmp", "unix:" + c.QMP + ",server=on,wait=off",
		"-S", "-incoming", "defer"}, words(disk.Path))
	there, err := qemu.StartCommand(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer there.Kill() //nolint:errcheck // it may have ended
	has(t, there, disk)
	socket := filepath.Join(c.Dir, "nbd.sock")
	if err := there.ExportDisks(t.Context(), socket, []string{id}); err != nil {
		t.Fatal(err)
	}
	if err := source.StartMirror(t.Context(), vm.Mirror{Disk: id, Socket: socket}); err != nil {
		t.Fatal(err)
	}
	awaitMirror(t, source, func(s vm.MirrorState) bool { return s.Ready })
	if err := source.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := source.FinishMirrors(t.Context()); err != nil {
		t.Fatal(err)
	}
	noMirrors(t, source)
	if err := there.EndExports(t.Context()); err != nil {
		t.Fatal(err)
	}
	want, err1 := os.ReadFile(from)
	got, err2 := os.ReadFile(disk.Path)
	if err1 != nil || err2 != nil || !bytes.Equal(got, want) {
		t.Errorf("the copy differs (%v, %v)", err1, err2)
	}
	comesTo(t, source, there, c.Dir)
}

// TestExportOfNoDisk: what the waiting QEMU does not have is refused by its name, and nothing is served.
func TestExportOfNoDisk(t *testing.T) {
	there, err := qemu.StartCommand(t.Context(), waiting(t))
	if err != nil {
		t.Fatal(err)
	}
	defer there.Kill() //nolint:errcheck // it may have ended
	socket := filepath.Join(t.TempDir(), "nbd.sock")
	err = there.ExportDisks(t.Context(), socket, []string{"system"})
	if err == nil || err.Error() != "export disk system: this QEMU has no such disk" {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(socket); !os.IsNotExist(err) {
		t.Errorf("its socket: %v", err)
	}
}
