// Package netns is the one door to named network namespaces.
//
// A namespace here is what `ip netns add` makes: a bind mount under /run/netns,
// so that ip(8) sees ours and we see its. Only the calling thread ever changes
// its namespace, and only inside Do.
package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// folder is where ip(8) keeps its namespaces, see ip-netns(8).
const folder = "/run/netns"

// self names the namespace of the calling thread, not of the process.
const self = "/proc/thread-self/ns/net"

// Path returns the file that stands for the namespace name.
func Path(name string) string { return filepath.Join(folder, name) }

// Create makes the namespace name. On failure nothing remains of it; a name that
// is taken gives an error that matches fs.ErrExist. The caller's own namespace
// does not change.
func Create(name string) error {
	if err := valid(name); err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("create namespace %s: %w", name, err)
	}
	defer alone()()
	if err := share(); err != nil {
		return fmt.Errorf("create namespace %s: %w", name, err)
	}
	file, err := os.OpenFile(Path(name), os.O_RDONLY|os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return fmt.Errorf("create namespace %s: %w", name, err)
	}
	file.Close()

	// The thread that unshares is never unlocked: it ends with its goroutine
	// and cannot carry the new namespace elsewhere.
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		done <- unix.Mount(self, Path(name), "none", unix.MS_BIND, "")
	}()
	if err := <-done; err != nil {
		os.Remove(Path(name))
		return fmt.Errorf("create namespace %s: %w", name, err)
	}
	return nil
}

// share makes the folder a mount of itself whose mounts are those of every mount namespace, as ip-netns(8)
// does with its first. If ip did so later, it would lay a copy over those that are there by then, which
// nobody who deletes their names could end.
func share() error {
	err := unix.Mount("", folder, "none", unix.MS_SHARED|unix.MS_REC, "")
	if !errors.Is(err, unix.EINVAL) {
		return err
	}
	if err := unix.Mount(folder, folder, "none", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	return unix.Mount("", folder, "none", unix.MS_SHARED|unix.MS_REC, "")
}

// longestAlone bounds for how long alone waits: anybody may lock a folder that everybody may read.
const longestAlone = 10 * time.Second

// alone returns once nobody else of us makes a namespace, or takes back what share made, until what it returns is
// called: of one that is made as the last other one ends the mount would lie below what share makes next, where nobody
// could end it. A lock on the folder itself would keep it mounted.
func alone() (done func()) {
	dir, err := os.Open(filepath.Dir(folder))
	if err != nil {
		return func() {}
	}
	locked := make(chan struct{})
	go func() { // who asks from time to time may never find it free
		defer close(locked)
		for errors.Is(unix.Flock(int(dir.Fd()), unix.LOCK_EX), unix.EINTR) { // by a signal
		}
	}()
	unlock := func() {
		<-locked
		dir.Close()
	}
	select {
	case <-locked:
		return unlock
	case <-time.After(longestAlone):
		go unlock()
		return func() {}
	}
}

// unshare takes that back when no namespace has a name any more: the kernel refuses otherwise, which is no matter.
func unshare() {
	defer alone()()
	entries, err := os.ReadDir(folder)
	if err == nil && len(entries) == 0 && ofItself() {
		_ = unix.Unmount(folder, 0)
	}
}

// ofItself says whether the folder is a mount of itself, and none of a file system's root, which somebody else made.
func ofItself() (is bool) {
	mounts, err := os.ReadFile("/proc/thread-self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if words := strings.Fields(line); err == nil && len(words) > 4 && words[4] == folder { // proc_pid_mountinfo(5)
			is = words[3] != "/" // the last is on top
		}
	}
	return is
}

// Delete takes the name away. The kernel ends the namespace, with every device
// in it, when the last process and descriptor inside are gone too; see Processes.
// A name that does not exist gives an error that matches fs.ErrNotExist.
func Delete(name string) error {
	if err := valid(name); err != nil {
		return err
	}
	if _, err := os.Lstat(Path(name)); err != nil {
		return fmt.Errorf("delete namespace %s: %w", name, err)
	}
	// EINVAL: the file is there but nothing is mounted on it, as a Create that
	// was killed half way leaves it.
	if err := unix.Unmount(Path(name), unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("delete namespace %s: %w", name, err)
	}
	if err := os.Remove(Path(name)); err != nil {
		return fmt.Errorf("delete namespace %s: %w", name, err)
	}
	unshare()
	return nil
}

// List returns the names of all namespaces that start with prefix, sorted.
func List(prefix string) ([]string, error) {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list namespaces: %w", err)
	}
	var names []string
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), prefix) {
			names = append(names, entry.Name())
		}
	}
	sort.Strings(names)
	return names, nil
}

// Do runs f on the calling goroutine, its thread locked inside the namespace name;
// "" is the namespace the thread is in. Goroutines that f starts are not inside, but
// sockets that f opens stay there. It returns f's error. When Do returns, the thread
// is back where it was, or belongs to this goroutine alone and ends with it.
func Do(name string, f func() error) error {
	if name == "" {
		return f()
	}
	if err := valid(name); err != nil {
		return err
	}
	runtime.LockOSThread()
	before, err := unix.Open(self, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter namespace %s: open the present one: %w", name, err)
	}
	defer unix.Close(before)
	if err := enter(Path(name)); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter namespace %s: %w", name, err)
	}
	defer func() {
		if unix.Setns(before, unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
	}()
	return f()
}

// Once runs f in a new namespace that has no name, and ends with f and what f starts there: nothing is left of it,
// however this process ends. The rest is as with Do.
func Once(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good, as in Create
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("create a namespace: %w", err)
			return
		}
		done <- f()
	}()
	return <-done
}

func enter(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Setns(fd, unix.CLONE_NEWNET)
}

// valid refuses names that would leave the folder.
func valid(name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") || len(name) > 255 {
		return fmt.Errorf("name namespace %q: %w", name, fs.ErrInvalid)
	}
	return nil
}
