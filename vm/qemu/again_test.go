package qemu_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"godwit/vm"
)

// TestDisksThatAreClosed: a disk by -drive that QEMU could not open again, as it must when its guest leaves, is told.
func TestDisksThatAreClosed(t *testing.T) {
	const nobody = "user=65534:65534"
	scsi := []string{"-device", "virtio-scsi-pci", "-device", "scsi-hd,drive=system"}
	drive := func(path string) []string { return []string{"-drive", "if=none,id=system,format=raw,file=" + path} }
	for _, c := range []struct {
		name  string
		with  string
		disk  func(path string) []string
		after func(path string) error
		want  string
	}{
		{"as it was", "async-teardown=off", drive, nil, ""},
		{"of another user who may read it", nobody, drive, nil, ""},
		{"of another user who may not", nobody, drive, func(path string) error { return os.Chmod(path, 0o600) }, "Permission denied"},
		{"of another user who need not", nobody, func(path string) []string { return drive(path + ",auto-read-only=off") },
			func(path string) error { return os.Chmod(path, 0o600) }, ""},
		{"moved away", "async-teardown=off", drive, func(path string) error { return os.Rename(path, path+".old") }, "No such file"},
		{"by -blockdev", nobody, func(path string) []string {
			return []string{"-blockdev", "driver=raw,node-name=system,file.driver=file,file.filename=" + path}
		}, func(path string) error { return os.Chmod(path, 0o600) }, ""},
		{"read-only", nobody, func(path string) []string {
			return []string{"-drive", "if=none,id=system,format=raw,read-only=on,file=" + path}
		}, func(path string) error { return os.Chmod(path, 0o600) }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := sparse(t, nil, 0)
			if err := os.Chmod(filepath.Dir(filepath.Dir(path)), 0o755); err != nil { //nolint:gosec // for QEMU's user
				t.Fatal(err)
			}
			p := theirs(t, append(append([]string{"-machine", "q35", "-accel", "tcg", "-m", "32", "-run-with", c.with}, c.disk(path)...), scsi...)...)
			if c.after != nil {
				if err := c.after(path); err != nil {
					t.Fatal(err)
				}
			}
			left := map[string]any{"driver": "null-co", "node-name": "godwit-again"}
			if err := p.QMP().Do(t.Context(), "blockdev-add", left, nil); err != nil { // as by an agent that was killed
				t.Fatal(err)
			}
			for range 2 { // nothing is left of the first look
				f, err := p.Facts(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if got := strings.Join(f.Closed, "; "); c.want == "" && got != "" || !strings.Contains(got, c.want) || len(f.Closed) > 1 {
					t.Errorf("told %q, want %q", got, c.want)
				}
			}
			status(t, p, vm.Running)
		})
	}
}
