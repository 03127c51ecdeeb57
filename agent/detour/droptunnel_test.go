package detour

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestDropTunnel: what is left of a tunnel that ended by itself goes, and one that does not answer holds up no other.
func TestDropTunnel(t *testing.T) {
	dir, err := os.MkdirTemp("", "gw")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	silent, err := net.Listen("unix", filepath.Join(dir, "gwt-1.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	log := filepath.Join(dir, "gwt-2.log")
	if err := os.WriteFile(log, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for _, name := range []string{"gwt-2", "gwt-2", ""} {
		if err := DropTunnel(t.Context(), dir, name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := os.Stat(log); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its log is left: %v", err)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("it took %v: another was asked, which does not answer", took)
	}
}
