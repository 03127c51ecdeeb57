package leftover

import (
	"os"
	"path/filepath"
	"testing"

	"godwit/agent/config"
	"godwit/migration"
)

// TestOpenDiskByAnotherPath: a disk that a process has open is not removed, also where STATE is named by a link:
// processes are known by the path that it leads to.
func TestOpenDiskByAnotherPath(t *testing.T) {
	real, link := t.TempDir(), filepath.Join(t.TempDir(), "state")
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	c := &config.Config{Host: "here", State: link}
	if err := os.Mkdir(filepath.Join(real, "disks"), 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(link, "disks", "web-3-root.raw"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rep := left("web-3-root.raw", 4, 0)
	o := &owners{history: map[string][]ended{"web": {{ID: rep.ID, Guest: "web", Epoch: 4, From: "here", To: "there", Outcome: migration.Completed, Requested: rep.Requested, Ended: rep.Ended, Left: rep.Left}}}}
	found, err := disks(t.Context(), c, o)
	if err != nil || len(found) != 1 || found[0].Left() {
		t.Errorf("%v, %v", found, err)
	}
	f.Close()
	if found, err = disks(t.Context(), c, o); err != nil || len(found) != 1 || !found[0].Left() {
		t.Errorf("when it is closed: %v, %v", found, err)
	}
}
