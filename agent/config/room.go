package config

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// roomLeast is what a file system has free of which it is not said that it is full: a journal begins with less, a
// report takes less.
const roomLeast = 1 << 20

// Unwritable says which of the directories that an agent writes to cannot be written, or are full, where they are
// there: an agent makes those that are not. Nothing is written.
func (c *Config) Unwritable() (all []string) {
	for _, d := range []struct{ key, dir string }{{"state", c.State}, {"run", c.Run}} {
		if why := Unwritable(d.dir); why != "" {
			all = append(all, fmt.Sprintf("%s %s: %s", d.key, d.dir, why))
		}
	}
	return all
}

// Unwritable is why a directory cannot be written, or is full; "": neither, or it is not there. Nothing is written.
func Unwritable(dir string) string {
	var fs unix.Statfs_t
	if unix.Statfs(dir, &fs) != nil {
		return ""
	}
	return unwritable(unix.Access(dir, unix.W_OK|unix.X_OK), fs, os.Geteuid() == 0)
}

// unwritable is Unwritable by what the kernel says of writing there, and of the file system.
func unwritable(err error, fs unix.Statfs_t, root bool) string {
	unit := fs.Frsize // statfs(2): blocks are counted in these
	if unit <= 0 {
		unit = fs.Bsize
	}
	blocks := fs.Bavail
	if root {
		blocks = fs.Bfree // also what others may not use
	}
	free := int64(blocks) * unit //nolint:gosec // no file system has 2^63 bytes
	switch {
	case errors.Is(err, unix.EROFS):
		return "its file system can only be read; mount it for writing"
	case err != nil:
		return fmt.Sprintf("it cannot be written (%v); give it to the agent's user", err)
	case free < roomLeast && fs.Blocks > 0: // some file systems in memory count none
		return fmt.Sprintf("its file system is full (%d KiB free); make room", free>>10)
	case fs.Files > 0 && fs.Ffree == 0:
		return "its file system has room for no more files (`df -i`); remove some"
	}
	return ""
}
