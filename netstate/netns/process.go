package netns

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Start starts cmd inside the namespace name ("" is the present one). After that
// cmd is the caller's: Wait for it as usual.
//
// A parent-death signal (SysProcAttr.Pdeathsig) fires when the *thread* that forked
// ends. A command that asks for one is therefore forked by a thread kept until the
// process ends.
func Start(name string, cmd *exec.Cmd) error {
	start := func() error { return Do(name, cmd.Start) }
	if cmd.SysProcAttr != nil && cmd.SysProcAttr.Pdeathsig != 0 {
		return onForker(start)
	}
	return start()
}

var forker struct {
	once sync.Once
	jobs chan func()
}

func onForker(f func() error) error {
	forker.once.Do(func() {
		forker.jobs = make(chan func())
		go fork()
	})
	result := make(chan error, 1)
	forker.jobs <- func() { result <- f() }
	return <-result
}

// fork serves forker.jobs for the life of the process.
func fork() {
	runtime.LockOSThread()
	for job := range forker.jobs {
		job()
	}
}

// Processes returns the ids of all processes in the namespace name, except the
// calling one; none if there is no such namespace. A process counts by its main thread.
func Processes(name string) []int {
	return ProcessesIn(name)[name]
}

// ProcessesIn returns Processes for many names in one pass over /proc.
func ProcessesIn(names ...string) map[string][]int {
	type inode struct{ dev, ino uint64 }
	wanted := map[inode]string{}
	for _, name := range names {
		var st unix.Stat_t
		if valid(name) == nil && unix.Stat(Path(name), &st) == nil {
			wanted[inode{st.Dev, st.Ino}] = name
		}
	}
	found := map[string][]int{}
	folders, _ := filepath.Glob("/proc/[0-9]*")
	for _, folder := range folders {
		pid, err := strconv.Atoi(filepath.Base(folder))
		if err != nil || pid == os.Getpid() {
			continue
		}
		var st unix.Stat_t
		if unix.Stat(folder+"/ns/net", &st) != nil {
			continue // ended meanwhile, or a zombie, which is in no namespace
		}
		if name, ok := wanted[inode{st.Dev, st.Ino}]; ok {
			found[name] = append(found[name], pid)
		}
	}
	return found
}

// Sysctl sets a kernel parameter of the namespace that the calling thread is in:
// use it inside Do. key is dotted, or a path with slashes where a part has a dot.
func Sysctl(key, value string) error {
	if err := os.WriteFile(sysctlPath(key), []byte(value), 0o644); err != nil {
		return fmt.Errorf("set sysctl %s to %q: %w", key, value, err)
	}
	return nil
}

// ReadSysctl returns a kernel parameter of the calling thread's namespace, without
// the newline at its end.
func ReadSysctl(key string) (string, error) {
	value, err := os.ReadFile(sysctlPath(key))
	if err != nil {
		return "", fmt.Errorf("read sysctl %s: %w", key, err)
	}
	return strings.TrimRight(string(value), "\n"), nil
}

func sysctlPath(key string) string {
	if !strings.Contains(key, "/") {
		key = strings.ReplaceAll(key, ".", "/")
	}
	return "/proc/sys/" + key
}
