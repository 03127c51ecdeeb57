package leftover

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/statefile"
	"godwit/vm"
)

// TestEndedGuests: what a guest that ended here is started again by is named, with how, and stays; so do its disks.
func TestEndedGuests(t *testing.T) {
	c := &config.Config{State: t.TempDir(), Run: t.TempDir(), Host: "here"}
	disk := filepath.Join(c.State, "disks", "web-3-root.raw")
	h := care.Held{
		Description: config.Description{Name: "web", Memory: 1 << 28, NICs: []config.NIC{{MAC: "52:54:00:00:01:0a"}}, Disks: []vm.Disk{{ID: "root", Path: disk, Format: "raw"}}},
		Dir:         filepath.Join(c.Run, "guests", "web-3"), Epoch: 3,
	}
	dir := filepath.Join(c.State, care.EndedFolder)
	if err := statefile.Write(filepath.Join(dir, "web.json"), care.Ended{Held: h, At: time.Unix(1e9, 0), Disks: []care.EndedDisk{{Path: disk}}}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "db.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	found, err := endedGuests(t.Context(), c, nil)
	if err != nil || len(found) != 2 || found[0].Left() || found[1].Left() || found[1].Guest != "web" || !strings.Contains(found[0].String(), "cannot be read") ||
		!strings.Contains(found[1].String(), "it ended here at 2001-09-09 01:46:40 UTC; `godwit guest start web` starts it again") {
		t.Errorf("%v, %v", found, err)
	}
	o, err := readOwners(c)
	if err != nil || o.disks[disk] != "guest web, which has ended" {
		t.Errorf("its disk is of %q, %v", o.disks[disk], err)
	}
}
