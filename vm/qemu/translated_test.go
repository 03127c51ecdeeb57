package qemu_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"godwit/vm"
)

// TestTranslatedMemory: a QEMU that waits for an emulated guest has the memory for what it will translate first by the
// time at which the guest runs, and what was in that memory is there still.
func TestTranslatedMemory(t *testing.T) {
	spec := firmware(t)
	spec.Incoming = true
	p := start(t, spec)
	at := writableCode(t, p.PID())
	before := codeAt(t, p.PID(), at)
	if err := p.PrepareIncoming(t.Context(), vm.MigrateOptions{URI: "unix:" + filepath.Join(t.TempDir(), "in")}); err != nil {
		t.Fatal(err)
	}
	_ = p.Cont(t.Context()) // which is refused: nothing came
	pagemap, err := os.Open(fmt.Sprintf("/proc/%d/pagemap", p.PID()))
	if err != nil {
		t.Fatal(err)
	}
	defer pagemap.Close()
	const pages = 24 << 20 / 4096
	entries := make([]byte, pages*8)
	if _, err := pagemap.ReadAt(entries, at/4096*8); err != nil {
		t.Fatal(err)
	}
	missing := 0
	for i := range pages {
		if binary.NativeEndian.Uint64(entries[i*8:])>>63 == 0 {
			missing++
		}
	}
	if missing > 0 {
		t.Errorf("%d of %d pages are missing", missing, pages)
	}
	if codeAt(t, p.PID(), at) != before || strings.Trim(before, "\x00") == "" {
		t.Error("what QEMU had written there has changed, or was nothing")
	}
}

// writableCode is where a QEMU has what it translates.
func writableCode(t *testing.T, pid int) (at int64) {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, " rwxp ") {
			if _, err := fmt.Sscanf(line, "%x-", &at); err != nil {
				t.Fatal(err)
			}
			return at
		}
	}
	t.Fatal("QEMU has no memory that it may write to and run")
	return 0
}

// codeAt is the page there.
func codeAt(t *testing.T, pid int, at int64) string {
	t.Helper()
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	page := make([]byte, 4096)
	if _, err := memory.ReadAt(page, at); err != nil {
		t.Fatal(err)
	}
	return string(page)
}
