package qemu_test

import (
	"bytes"
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"godwit/internal/need"
	"godwit/vm"
	"godwit/vm/qemu"
)

// theirs is a running QEMU that somebody else started.
func theirs(t *testing.T, words ...string) *qemu.Process {
	t.Helper()
	need.QEMU(t)
	socket := filepath.Join(t.TempDir(), "theirs.sock")
	cmd := exec.Command(qemu.Program, append([]string{"-nodefaults", "-display", "none", "-qmp", "unix:" + socket + ",server=on,wait=off"}, words...)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill() //nolint:errcheck // it may have ended
		cmd.Wait()         //nolint:errcheck // by that
	})
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		p, err := qemu.AttachSocket(t.Context(), socket, 0, "")
		if err == nil {
			t.Cleanup(func() { p.Close() })
			if p.PID() != cmd.Process.Pid {
				t.Errorf("attached to %d, started %d", p.PID(), cmd.Process.Pid)
			}
			return p
		}
		if time.Since(begun) > 20*time.Second {
			t.Fatal(err)
		}
	}
}

// TestCDMoves: a guest's CD, of either kind, is a disk that it has read-only, is copied as it runs, and is where the
// guest finds it when it comes to.
func TestCDMoves(t *testing.T) {
	data := make([]byte, diskData)
	rand.Read(data) //nolint:errcheck // it does not fail
	for kind, devices := range map[string][]string{
		"ide-cd":  {"-device", "ide-cd,drive=seed"},
		"scsi-cd": {"-device", "virtio-scsi-pci", "-device", "scsi-cd,drive=seed"},
	} {
		t.Run(kind, func(t *testing.T) { movesCD(t, devices, data) })
	}
}

func movesCD(t *testing.T, devices []string, data []byte) {
	words := func(path string) []string {
		return slices.Concat([]string{"-machine", "q35", "-accel", "tcg", "-m", "32",
			"-blockdev", "driver=raw,node-name=seed,read-only=on,file.driver=file,file.filename=" + path}, devices)
	}
	disk := vm.Disk{ID: "seed", Path: sparse(t, data, 20<<20), Format: "raw", Size: diskSize, ReadOnly: true}
	source := theirs(t, words(disk.Path)...)
	has(t, source, disk)
	disk.Path = copyReadOnly(t, source, disk)
	if got, err := os.ReadFile(disk.Path); err != nil || len(got) != diskSize || !bytes.Equal(got[20<<20:20<<20+diskData], data) {
		t.Errorf("the copy differs from the disk (%v)", err)
	}

	c := waiting(t)
	c.Words = append([]string{qemu.Program, "-nodefaults", "-display", "none", "-qmp", "unix:" + c.QMP + ",server=on,wait=off", "-S", "-incoming", "defer"}, words(disk.Path)...)
	there, err := qemu.StartCommand(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer there.Kill() //nolint:errcheck // it may have ended
	has(t, there, disk)
	comesTo(t, source, there, c.Dir)
	has(t, there, disk)
}

// has checks that it is the one disk of that QEMU.
func has(t *testing.T, p *qemu.Process, want vm.Disk) {
	t.Helper()
	if f, err := p.Facts(t.Context()); err != nil || len(f.Disks) != 1 || f.Disks[0] != want || len(f.Blockers) != 0 {
		t.Fatalf("%+v, %v; want %+v", f.Disks, err, want)
	}
}

// comesTo moves the guest to the QEMU that waits in dir, where it runs on.
func comesTo(t *testing.T, source, there *qemu.Process, dir string) {
	t.Helper()
	opts := vm.MigrateOptions{URI: "unix:" + filepath.Join(dir, "in.sock")}
	if err := there.PrepareIncoming(t.Context(), opts); err != nil {
		t.Fatal(err)
	}
	if err := source.Migrate(t.Context(), opts); err != nil {
		t.Fatal(err)
	}
	for _, p := range []*qemu.Process{source, there} {
		if _, err := p.AwaitMigration(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := there.Cont(t.Context()); err != nil {
		t.Fatal(err)
	}
	status(t, there, vm.Running)
}
