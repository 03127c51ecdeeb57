package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNumbersAreAsWritten: what looks like a number is that text where a text is meant, and nothing is cut off one.
func TestNumbersAreAsWritten(t *testing.T) {
	read := func(text string) (Description, error) {
		path := filepath.Join(t.TempDir(), "web.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return LoadDescription(path)
	}
	for _, name := range []string{"010", "0x10", "1.50", "7", "1e3"} {
		if d, err := read("start: [x, " + name + "]\nname: " + name + "\n"); err != nil || d.Name != name || d.Start[1] != name {
			t.Errorf("name %s: %q, started by %q, %v", name, d.Name, d.Start, err)
		}
	}
	if d, err := read("memory: 3.2e7\nvcpus: 2.0\n"); err != nil || d.VCPUs != 2 || d.Memory != 32e6 {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := read("name: web\nvcpus: 1.9\n"); err == nil || !strings.HasSuffix(err.Error(), "web.yaml:2:8: vcpus: not a whole number") {
		t.Errorf("1.9 processors: %v", err)
	}
}
