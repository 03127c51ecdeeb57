package qemu_test

import (
	"bytes"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"godwit/vm"
	"godwit/vm/qemu"
)

const (
	diskSize = 64 << 20
	diskData = 4 << 20 // random bytes in the middle, the rest is a hole
)

// sparse makes a disk's file with data at an offset.
func sparse(t *testing.T, data []byte, at int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk.raw")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(diskSize); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(data, at); err != nil {
		t.Fatal(err)
	}
	return path
}

// pair starts a guest with the disk from and one that waits with the disk to, which
// it exports.
func pair(t *testing.T, from, to string) (source, waiting *qemu.Process, socket string) {
	t.Helper()
	return pairOf(t, "disk0", from, to)
}

// pairOf is such, with a disk of this id.
func pairOf(t *testing.T, id, from, to string) (source, waiting *qemu.Process, socket string) {
	t.Helper()
	spec := firmware(t)
	spec.Disks = []vm.Disk{{ID: id, Path: from, Format: "raw"}}
	source = start(t, spec)
	spec = firmware(t)
	spec.Disks, spec.Incoming = []vm.Disk{{ID: id, Path: to, Format: "raw"}}, true
	waiting = start(t, spec)
	socket = filepath.Join(spec.Dir, "nbd.sock")
	if err := waiting.ExportDisks(t.Context(), socket, []string{id}); err != nil {
		t.Fatal(err)
	}
	return source, waiting, socket
}

// awaitMirror waits until the one mirror satisfies ok.
func awaitMirror(t *testing.T, p *qemu.Process, ok func(vm.MirrorState) bool) vm.MirrorState {
	t.Helper()
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		states, err := p.Mirrors(t.Context())
		if err != nil || len(states) != 1 {
			t.Fatalf("mirrors %+v, %v", states, err)
		}
		if ok(states[0]) {
			return states[0]
		}
		if time.Since(begun) > 20*time.Second {
			t.Fatalf("mirror is still %+v", states[0])
		}
	}
}

// noMirrors checks that nothing is left of mirrors: neither job nor node.
func noMirrors(t *testing.T, p *qemu.Process) {
	t.Helper()
	if states, err := p.Mirrors(t.Context()); err != nil || len(states) != 0 {
		t.Errorf("mirrors %+v, %v", states, err)
	}
	var nodes []struct {
		Name string `json:"node-name"`
	}
	if err := p.QMP().Do(t.Context(), "query-named-block-nodes", nil, &nodes); err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		if strings.HasPrefix(n.Name, "godwit") || strings.HasPrefix(n.Name, "gw-") {
			t.Errorf("node %s is left", n.Name)
		}
	}
}

// TestMirror: a disk is copied with its holes, in sync when the guest is stopped, and
// quickly so; the destination's guest can use it afterwards.
func TestMirror(t *testing.T) {
	for _, id := range []string{"disk0", "libvirt-pflash0-format_"} { // the second has as many letters as may be
		t.Run(id, func(t *testing.T) { mirrors(t, id) })
	}
}

func mirrors(t *testing.T, id string) {
	data := make([]byte, diskData)
	rand.Read(data)
	from, to := sparse(t, data, 20<<20), sparse(t, nil, 0)
	source, waiting, socket := pairOf(t, id, from, to)
	if err := source.StartMirror(t.Context(), vm.Mirror{Disk: id, Socket: socket}); err != nil {
		t.Fatal(err)
	}
	awaitMirror(t, source, func(s vm.MirrorState) bool { return s.Ready })
	if err := source.BlockWrites(t.Context(), id); err != nil {
		t.Error(err)
	}
	if err := source.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if err := source.FinishMirrors(t.Context()); err != nil {
		t.Fatal(err)
	}
	took := time.Since(begun)
	t.Logf("in sync %v after the stop", took)
	if took > 10*time.Second {
		t.Errorf("in sync after %v", took)
	}
	noMirrors(t, source)
	if err := source.FinishMirrors(t.Context()); err != nil {
		t.Errorf("without mirrors: %v", err)
	}
	for range 2 { // the second has nothing to do
		if err := waiting.EndExports(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(to)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the copy differs from the disk (%v)", err)
	}
	info, err := os.Stat(to)
	if err != nil {
		t.Fatal(err)
	}
	if used := info.Sys().(*syscall.Stat_t).Blocks * 512; used > 2*diskData {
		t.Errorf("the copy takes %d bytes for %d of data", used, diskData)
	}
}

// TestDropMirrors: one that hangs on a dead copy goes, and also what an earlier
// connection began.
func TestDropMirrors(t *testing.T) {
	data := make([]byte, diskData)
	rand.Read(data)
	spec := firmware(t)
	spec.Disks = []vm.Disk{{ID: "disk0", Path: sparse(t, data, 0), Format: "raw"}}
	source := start(t, spec)
	other := firmware(t)
	other.Disks, other.Incoming = []vm.Disk{{ID: "disk0", Path: sparse(t, nil, 0), Format: "raw"}}, true
	waiting := start(t, other)
	socket := filepath.Join(other.Dir, "nbd.sock")
	if err := waiting.ExportDisks(t.Context(), socket, []string{"disk0"}); err != nil {
		t.Fatal(err)
	}
	if err := source.StartMirror(t.Context(), vm.Mirror{Disk: "disk0", Socket: socket}); err != nil {
		t.Fatal(err)
	}
	source.Close()
	again, err := qemu.Attach(t.Context(), spec.Dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { again.Kill() }) //nolint:errcheck // the test ends
	if err := waiting.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := again.DropMirrors(t.Context()); err != nil {
		t.Fatal(err)
	}
	noMirrors(t, again)
	status(t, again, vm.Running)
	if err := again.DropMirrors(t.Context()); err != nil {
		t.Errorf("without mirrors: %v", err)
	}
	if err := again.StartMirror(t.Context(), vm.Mirror{Disk: "disk0", Socket: socket}); err == nil {
		t.Error("a mirror to nobody began")
	}
	noMirrors(t, again)
}
