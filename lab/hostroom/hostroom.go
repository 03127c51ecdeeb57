// Package hostroom takes room from one host of a lab alone, although all of them share a machine: on the disk of its
// state, and in memory. What it makes is found again by the lab's id and directory alone.
package hostroom

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// stateSize is how large the file system of a host's state may grow, bytes. It is of
// memory, and takes what is really in it.
const stateSize = 4 << 30

// MountState gives a host's state directory a file system of its own.
func MountState(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := unix.Mount("godwit-lab", dir, "tmpfs", 0, fmt.Sprintf("mode=700,size=%d", int64(stateSize))); err != nil {
		return fmt.Errorf("mount a file system of its own at %s: %w", dir, err)
	}
	return nil
}

// FillState leaves no room on a file system that MountState made.
// What is written while it looks makes the kernel refuse what it saw: then it looks again.
func FillState(dir string) error {
	for tries := 100; ; tries-- {
		var fs unix.Statfs_t
		if err := unix.Statfs(dir, &fs); err != nil {
			return fmt.Errorf("fill %s: %w", dir, err)
		}
		used := int64(fs.Blocks-fs.Bfree) * fs.Bsize //nolint:gosec // below stateSize
		if err := sizeState(dir, max(used, fs.Bsize)); tries == 0 || !errors.Is(err, unix.EINVAL) {
			return err
		}
	}
}

// EmptyState gives a file system that FillState filled its room back.
func EmptyState(dir string) error { return sizeState(dir, stateSize) }

func sizeState(dir string, size int64) error {
	if err := unix.Mount("godwit-lab", dir, "tmpfs", unix.MS_REMOUNT, fmt.Sprintf("size=%d", size)); err != nil {
		return fmt.Errorf("give %s room for %d bytes: %w", dir, size, err)
	}
	return nil
}

// MemoryGroup is a control group of processes that share a bound on memory.
type MemoryGroup struct {
	dir   string
	limit string // the file that bounds it
}

var errNoMemoryGroups = errors.New("this machine lets no control group bound memory")

// groupDirs are where control groups for memory are: version 1, version 2.
func groupDirs() (dir, limit string, err error) {
	if _, err := os.Stat("/sys/fs/cgroup/memory/memory.limit_in_bytes"); err == nil {
		return "/sys/fs/cgroup/memory", "memory.limit_in_bytes", nil
	}
	data, err := os.ReadFile("/sys/fs/cgroup/cgroup.subtree_control")
	if err == nil && strings.Contains(string(data), "memory") {
		return "/sys/fs/cgroup", "memory.max", nil
	}
	return "", "", errNoMemoryGroups
}

func groupName(id string) string { return "godwit-lab-" + id }

// Starve puts processes into the lab's group, where they get no more memory than room
// bytes beyond what they have; the kernel kills one of them when it needs more.
func Starve(id string, room int64, pids ...int) (*MemoryGroup, error) {
	dir, limit, err := groupDirs()
	if err != nil {
		return nil, err
	}
	g := &MemoryGroup{filepath.Join(dir, groupName(id)), limit}
	if err := os.MkdirAll(g.dir, 0o755); err != nil {
		return nil, fmt.Errorf("make control group: %w", err)
	}
	if err := g.write(g.limit, fmt.Sprint(room)); err != nil {
		return nil, err
	}
	for _, pid := range pids {
		if err := g.write("cgroup.procs", fmt.Sprint(pid)); err != nil && !errors.Is(err, unix.ESRCH) {
			return nil, errors.Join(err, g.Feed())
		}
	}
	return g, nil
}

// Feed takes the bound away; who lives stays in the group.
func (g *MemoryGroup) Feed() error {
	unbounded := "-1"
	if g.limit == "memory.max" {
		unbounded = "max"
	}
	return g.write(g.limit, unbounded)
}

func (g *MemoryGroup) write(file, value string) error {
	if err := os.WriteFile(filepath.Join(g.dir, file), []byte(value), 0o644); err != nil {
		return fmt.Errorf("control group: %w", err)
	}
	return nil
}

// Free removes the file systems below a lab's directory, and the control group of that lab, whose
// processes have ended. It needs no memory of them, and what is not there is no error.
func Free(id, dir string) error {
	var errs []error
	for _, m := range mountsBelow(dir) {
		errs = append(errs, unix.Unmount(m, unix.MNT_DETACH))
	}
	if groups, _, err := groupDirs(); err == nil {
		group := filepath.Join(groups, groupName(id))
		for range 50 {
			if err = os.Remove(group); err == nil || errors.Is(err, os.ErrNotExist) {
				err = nil
				break
			}
			time.Sleep(20 * time.Millisecond) // its last process is still ending
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func mountsBelow(dir string) []string {
	f, err := os.Open("/proc/self/mounts")
	if err != nil {
		return nil
	}
	defer f.Close()
	var out []string
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if words := strings.Fields(lines.Text()); len(words) > 1 && strings.HasPrefix(words[1], dir+"/") {
			out = append(out, words[1])
		}
	}
	return out
}
