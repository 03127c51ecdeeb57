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
)

// TestEndedGuests: what a guest was that ended here is named, with what to do, and stays.
func TestEndedGuests(t *testing.T) {
	c := &config.Config{State: t.TempDir(), Run: t.TempDir(), Host: "here"}
	d := config.Description{Name: "web", Memory: 1 << 28, NICs: []config.NIC{{MAC: "52:54:00:00:01:0a"}}}
	dir := filepath.Join(c.State, care.EndedFolder)
	if err := statefile.Write(filepath.Join(dir, "web.json"), care.Ended{Description: d, At: time.Unix(1e9, 0)}); err != nil {
		t.Fatal(err)
	}
	d.Name = "went"
	if err := statefile.Write(filepath.Join(dir, "went.json"), care.Ended{Description: d, At: time.Unix(1e9, 0), Unheard: &care.Unheard{Migration: "m-00000001", From: "oslo"}}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "db.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	found, err := endedGuests(t.Context(), c, nil)
	if err != nil || len(found) != 3 || found[0].Left() || found[1].Left() || found[1].Guest != "web" || !strings.Contains(found[0].String(), "mend the file, or move it away") ||
		!strings.Contains(found[1].String(), "it ended here at 2001-09-09 01:46:40 UTC, and no agent starts it again; `godwit guest describe --ended web`") ||
		!strings.Contains(found[2].String(), "UTC, oslo, from which it came, has not said yet whether it took it back, and no agent starts it again; `godwit guest describe --ended went` says what it was, `godwit guest forget went`") {
		t.Errorf("%v, %v", found, err)
	}
}
