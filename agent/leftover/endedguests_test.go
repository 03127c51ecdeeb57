package leftover

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/record"
	"godwit/agent/statefile"
	"godwit/migration"
	"godwit/vm"
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

// TestCleanLeavesDisksOfTheEnded: the disks of a guest that has ended here are its, though it had left before, as long
// as what it was is kept; where that cannot be read, all may be its, and nothing but disks.
func TestCleanLeavesDisksOfTheEnded(t *testing.T) {
	h := newHost(t)
	disk := h.write("disks/gone-2-disk0.raw", "of a guest that left, and came back by hand")
	h.write("history/m-00000009.json", record.Report{ID: "m-00000009", Guest: "gone", Epoch: 3, From: "here", To: "there", Left: []string{"gone-2-disk0.raw"},
		Outcome: migration.Completed, Requested: time.Now().Add(-time.Minute).UnixNano(), Ended: time.Now().UnixNano()})
	kept := filepath.Join(h.config.State, care.EndedFolder, "gone.json")
	d := config.Description{Name: "gone", Memory: 1 << 28, NICs: []config.NIC{{MAC: "52:54:00:00:01:0a"}}, Disks: []vm.Disk{{ID: "disk0", Path: disk, Format: "raw"}}}
	h.must(statefile.Write(kept, care.Ended{Description: d, At: time.Unix(1e9, 0)}))
	is := func(what string, want func(Thing) bool) {
		t.Helper()
		h.want(what, names(h.clean(), func(Thing) bool { return true }))
		h.want(what, names(h.find(), want), "disk gone-2-disk0.raw")
	}
	is("kept", func(t Thing) bool { return t.Owner == "guest gone, which has ended" })
	h.must(os.WriteFile(kept, []byte("{"), 0o600))
	is("unread", func(t Thing) bool { return t.Stays == endedWords })
	h.must(os.MkdirAll(filepath.Join(h.config.Run, "guests", "old-1"), 0o700))
	h.want("cleaned with it unread", names(h.clean(), func(Thing) bool { return true }), "guest old-1")
	h.must(statefile.Write(filepath.Join(h.config.State, "guests", "gone.json"), care.Held{Description: d, Epoch: 4, Dir: filepath.Join(h.config.Run, "guests", "gone-4")}))
	is("here again", func(t Thing) bool { return t.Owner == "guest gone" })
	h.must(os.Remove(filepath.Join(h.config.State, "guests", "gone.json")))
	h.must(os.Remove(kept))
	h.want("forgotten", names(h.clean(), func(Thing) bool { return true }), "disk gone-2-disk0.raw")
}
