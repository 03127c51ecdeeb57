package durable

import (
	"os"
	"path/filepath"
	"testing"
)

// TestWriteFile: a file is replaced whole, for its owner alone; what cannot be written leaves nothing behind.
func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path, taken := filepath.Join(dir, "mark"), filepath.Join(dir, "taken")
	if err := os.MkdirAll(filepath.Join(taken, "by something"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"a longer text", "short", ""} {
		if err := WriteFile(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("%q, %v; want %q", got, err, text)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	for _, p := range []string{taken, filepath.Join(dir, "nowhere", "mark")} {
		if err := WriteFile(p, nil); err == nil {
			t.Errorf("%s was written", p)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestSyncDir(t *testing.T) {
	if err := SyncDir(t.TempDir()); err != nil {
		t.Error(err)
	}
	if err := SyncDir(filepath.Join(t.TempDir(), "nowhere")); !os.IsNotExist(err) {
		t.Errorf("one that is not there: %v", err)
	}
}
