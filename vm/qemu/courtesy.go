package qemu

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// migrationThreads are the names of QEMU's threads that copy, compress and load
// memory: from 9.1 on by their direction, before that one by one.
var migrationThreads = []string{"mig/", "multifdsend", "multifdrecv", "live_migration"}

// Courtesy makes the threads that copy memory yield to the guests' processors (on),
// or not any more. Compressing must not slow down what is still being served; once
// the guest is stopped, nothing is more urgent. It returns how many threads it
// changed; those that come later have their parent's priority.
func (p *Process) Courtesy(on bool) (int, error) {
	nice := 0
	if on {
		nice = 10
	}
	names, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", p.pid))
	if err != nil {
		return 0, err
	}
	changed := 0
	for _, name := range names {
		comm, err := os.ReadFile(name)
		if err != nil || !copiesMemory(string(comm)) {
			continue
		}
		tid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err != nil {
			continue
		}
		if err := unix.Setpriority(unix.PRIO_PROCESS, tid, nice); err == nil {
			changed++
		}
	}
	return changed, nil
}

func copiesMemory(comm string) bool {
	for _, name := range migrationThreads {
		if strings.HasPrefix(comm, name) {
			return true
		}
	}
	return false
}
