package config

import (
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestUnwritable(t *testing.T) {
	fs := func(free, files uint64) unix.Statfs_t {
		return unix.Statfs_t{Bsize: 1 << 20, Frsize: 4096, Blocks: 1 << 20, Bavail: free, Bfree: free + 10, Files: 100, Ffree: files}
	}
	for _, c := range []struct {
		name string
		err  error
		fs   unix.Statfs_t
		want string
	}{
		{"well", nil, fs(256, 1), ""},
		{"well, and counts nothing", nil, unix.Statfs_t{}, ""},
		{"read-only", unix.EROFS, fs(0, 0), "can only be read"},
		{"another's", unix.EACCES, fs(256, 1), "permission denied"},
		{"full", nil, fs(255, 1), "is full (1020 KiB free)"},
		{"full of files", nil, fs(256, 0), "no more files"},
	} {
		if got := unwritable(c.err, c.fs, false); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	if got := unwritable(nil, fs(250, 1), true); got != "" {
		t.Errorf("root has what others may not use: %q", got)
	}
	c := Config{State: t.TempDir(), Run: filepath.Join(t.TempDir(), "not-there-yet")}
	if got := c.Unwritable(); len(got) > 0 {
		t.Errorf("directories of a test: %q", got)
	}
}
