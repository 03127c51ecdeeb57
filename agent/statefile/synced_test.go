package statefile

import (
	"encoding/binary"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestDirectorySynced: a file is not only renamed: its directory is opened after that, which is for nothing but to sync
// it. A host that loses its power would have the file of before else.
func TestDirectorySynced(t *testing.T) {
	dir := t.TempDir()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_OPEN|unix.IN_MOVED_TO); err != nil {
		t.Fatal(err)
	}
	if err := Write(filepath.Join(dir, "kept.json"), 1); err != nil {
		t.Fatal(err)
	}
	events := make([]byte, 4096)
	n, err := unix.Read(fd, events)
	if err != nil {
		t.Fatal(err)
	}
	renamed, opened := false, false
	for at := events[:n]; len(at) >= unix.SizeofInotifyEvent; { // inotify(7): wd, mask, cookie, len, name
		mask, name := binary.NativeEndian.Uint32(at[4:]), binary.NativeEndian.Uint32(at[12:])
		renamed = renamed || mask&unix.IN_MOVED_TO != 0
		opened = opened || renamed && mask&unix.IN_ISDIR != 0
		at = at[unix.SizeofInotifyEvent+name:]
	}
	if !renamed || !opened {
		t.Errorf("renamed %v, its directory opened after that %v", renamed, opened)
	}
}
