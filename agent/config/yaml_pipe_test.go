package config

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestFileThatIsAPipe: nobody waits for whoever writes to it.
func TestFileThatIsAPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.yaml")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadDescription(path); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("description: %v", err)
	}
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("configuration: %v", err)
	}
}
