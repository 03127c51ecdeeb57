package statefile

import (
	"encoding/binary"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestDirectorySynced: a file is not only renamed, or removed: its directory is opened after that, which is for nothing
// but to sync it. A host that loses its power would have the file of before else.
func TestDirectorySynced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kept.json")
	for _, c := range []struct {
		name string
		mask uint32
		do   func() error
	}{
		{"written", unix.IN_MOVED_TO, func() error { return Write(path, 1) }},
		{"removed", unix.IN_DELETE, func() error { return Remove(path) }},
	} {
		if done, opened := watched(t, filepath.Dir(path), c.mask, c.do); !done || !opened {
			t.Errorf("%s: seen %v, its directory opened after that %v", c.name, done, opened)
		}
	}
	if err := Remove(path); err != nil {
		t.Errorf("what is not there: %v", err)
	}
	if err := Remove(filepath.Dir(filepath.Dir(path))); err == nil {
		t.Error("removed a directory with something in it")
	}
}

// watched says whether an event of dir came as something was done, and whether dir was opened after that.
func watched(t *testing.T, dir string, mask uint32, do func() error) (done, opened bool) {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_OPEN|mask); err != nil {
		t.Fatal(err)
	}
	if err := do(); err != nil {
		t.Fatal(err)
	}
	events := make([]byte, 4096)
	n, err := unix.Read(fd, events)
	if err != nil {
		t.Fatal(err)
	}
	for at := events[:n]; len(at) >= unix.SizeofInotifyEvent; { // inotify(7): wd, mask, cookie, len, name
		got, name := binary.NativeEndian.Uint32(at[4:]), binary.NativeEndian.Uint32(at[12:])
		done = done || got&mask != 0
		opened = opened || done && got&unix.IN_ISDIR != 0
		at = at[unix.SizeofInotifyEvent+name:]
	}
	return done, opened
}
