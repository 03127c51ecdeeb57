package detour

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
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
	for _, name := range []string{"gwt-2", "gwt-2", ""} {
		if err := DropTunnel(t.Context(), dir, name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := os.Stat(log); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its log is left: %v", err)
	}
	ours, err := net.Dial("unix", silent.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	fmt.Fprint(ours, "ours")
	first, err := silent.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	got := make([]byte, 4)
	if n, err := io.ReadFull(first, got); err != nil || string(got) != "ours" {
		t.Errorf("another was asked before, which does not answer: %q, %v", got[:n], err)
	}
}
