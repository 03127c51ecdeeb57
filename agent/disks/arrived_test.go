package disks

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"godwit/agent/agenttest"
	"godwit/migration"
	"godwit/vm"
)

// TestUnwrittenOnceIsUnwrittenForGood: the source drops its copy of a disk when the guest has landed. Of what the
// storage failed to write, the kernel tells once: a second sync says that all is well.
func TestUnwrittenOnceIsUnwrittenForGood(t *testing.T) {
	path, mark := filepath.Join(t.TempDir(), "web-2-vda.raw"), filepath.Join(t.TempDir(), "state", "unsynced-m-00000001")
	noted := ""
	sync := func(a *Arrived) error {
		return a.Sync([]vm.Disk{{ID: "vda", Path: path}}, migration.Plan{ID: "m-00000001", From: "paris", To: "rome"}, mark, func(text string) { noted = text })
	}
	a := &Arrived{}
	if err := a.Make(path, 4096); err != nil {
		t.Fatal(err)
	}
	if err := sync(a); err != nil || noted != "" {
		t.Fatal(err, noted)
	}
	a.Close() // so that a sync fails; nor can that be written down, as there is no such directory
	if err := sync(a); err == nil || !strings.Contains(noted, "vda is not whole on rome") {
		t.Fatalf("synced: %v, noted %q", err, noted)
	}
	if _, err := os.Lstat(mark); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what could not be written is there: %v", err)
	}
	if err := os.Mkdir(filepath.Dir(mark), 0o700); err != nil {
		t.Fatal(err)
	}
	said, opened := "", a.files
	a.files = nil // what is opened anew has no error to tell
	for range 3 {
		err := sync(a)
		if err == nil || !strings.Contains(err.Error(), "vda") {
			t.Fatalf("synced: %v", err)
		}
		said = err.Error()
	}
	a.files = opened
	again := &Arrived{}
	if err := sync(again); err == nil || err.Error() != said {
		t.Errorf("by an agent that was started again: %v, want %s", err, said)
	}
	if err := errors.Join(os.Remove(mark), os.Mkdir(mark, 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := sync(&Arrived{}); err == nil {
		t.Error("what cannot be read is taken for a person's word")
	}
	if err := os.Remove(mark); err != nil {
		t.Fatal(err)
	}
	for name, a := range map[string]*Arrived{"the same agent": a, "the later one": again} {
		if err := sync(a); err != nil {
			t.Errorf("%s, when a person has said that the other copy may go: %v", name, err)
		}
	}
}

// TestUnwrittenOutlivesTheHost: that a disk is not whole is on the disk itself, and so is its name: its directory is
// opened after that, which is for nothing but to sync it.
func TestUnwrittenOutlivesTheHost(t *testing.T) {
	a, state := &Arrived{failed: errors.New("not whole")}, t.TempDir()
	agenttest.OpensAfter(t, state, unix.IN_MODIFY, func() {
		if err := a.tell(filepath.Join(state, "unsynced-m-00000001")); err == nil || !a.marked {
			t.Fatalf("%v, kept: %v", err, a.marked)
		}
	})
}

// TestDisksAreMadeWhereNoneAre: a disk that comes takes no other's place; one that is not there is not whole.
func TestDisksAreMadeWhereNoneAre(t *testing.T) {
	path, mark := filepath.Join(t.TempDir(), "web-2-vda.raw"), filepath.Join(t.TempDir(), "unsynced-m-00000001")
	if err := os.WriteFile(path, []byte("another's"), 0o600); err != nil {
		t.Fatal(err)
	}
	a := &Arrived{}
	if err := a.Make(path, 4096); err == nil || len(a.Files()) > 0 {
		t.Errorf("made: %v, %v", a.Files(), err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "another's" {
		t.Errorf("it holds %q, %v", data, err)
	}
	if err := a.Make(path+".huge", 1<<62); err == nil || len(a.Files()) > 0 {
		t.Errorf("larger than any file: %v, %v", a.Files(), err)
	}
	if err := a.Sync([]vm.Disk{{ID: "vda", Path: path + ".none"}}, migration.Plan{}, mark, func(string) {}); err == nil || !strings.Contains(err.Error(), "disk vda") {
		t.Errorf("synced: %v", err)
	}
}
