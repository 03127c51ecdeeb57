package lab

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"godwit/agent/config"
	"godwit/lab/scenario"
)

// TestDiskTooLargeForItsFileSystem: who asks for a disk that no file here can be is told so, and what helps.
func TestDiskTooLargeForItsFileSystem(t *testing.T) {
	dir, size := t.TempDir(), int64(1)<<62
	if err := os.WriteFile(filepath.Join(dir, "try"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if os.Truncate(filepath.Join(dir, "try"), size) == nil {
		t.Skip("this file system has files of 4 EiB")
	}
	w := &world{agents: map[string]*hostAgent{"montreal": {config: config.Config{State: dir}}}}
	err := w.makeDisks(&config.Description{}, scenario.Guest{Name: "web", Disks: []int64{size}}, "montreal")
	if err == nil {
		t.Fatal("it was made")
	}
	for _, word := range []string{"guest web", os.TempDir(), "4611686018427387904 bytes", "a smaller one", "TMPDIR"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q says nothing of %q", err, word)
		}
	}
}
