package agent

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"godwit/agent/config"
	"godwit/agent/visits"
)

// What a host keeps lies in directories of its state: "disks", "visits", and in "" what else there is. Each may be a
// file system of its own, such as a volume for disks.

// unwritable is config.Unwritable. Tests have a file system that can only be read.
var unwritable = (*config.Config).Unwritable

// placeOf is where what lies, or will: a directory that is not there yet is made in the state directory.
func (a *Agent) placeOf(what string) string {
	dir := a.config.StatePath(what)
	if _, err := os.Stat(dir); err != nil {
		return a.config.State
	}
	return dir
}

// roomFor says whether there is room for so many bytes, and the reserve, where what lies. Memory of earlier visits
// that is kept on the same file system makes way.
func (a *Agent) roomFor(what string, bytes int64) (free int64, ok bool, err error) {
	look := func() error {
		var stat unix.Statfs_t
		if err := unix.Statfs(a.placeOf(what), &stat); err != nil {
			return fmt.Errorf("look for room in %s: %w", a.placeOf(what), err)
		}
		free = available(stat)
		return nil
	}
	if err := look(); err != nil || free >= bytes+diskReserve {
		return free, err == nil, err
	}
	if !a.share(what, "visits") {
		return free, false, nil
	}
	visits.Bound(a.config, 0, a.log.Warn)
	err = look()
	return free, err == nil && free >= bytes+diskReserve, err
}

// share says whether both lie on one file system, or may.
func (a *Agent) share(what, other string) bool {
	var one, two unix.Stat_t
	if unix.Stat(a.placeOf(what), &one) != nil || unix.Stat(a.placeOf(other), &two) != nil {
		return true
	}
	return one.Dev == two.Dev
}

// available is what a file system has free for all, bytes. Its blocks are counted in fragments (statfs(2)), which are
// smaller than blocks on some file systems in user space.
func available(stat unix.Statfs_t) int64 {
	unit := stat.Frsize
	if unit <= 0 {
		unit = stat.Bsize
	}
	return int64(stat.Bavail) * unit //nolint:gosec // no file system has 2^63 bytes
}
