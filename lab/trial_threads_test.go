package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"godwit/netstate/netns"
)

// showQEMUs says what each QEMU's threads are at: a QEMU that answers nobody is understood by nothing else.
func (p *trial) showQEMUs() {
	for host, a := range p.w.agents {
		for _, pid := range netns.Processes(a.host.Namespace) {
			if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err == nil && strings.HasPrefix(string(comm), "qemu-system") {
				p.Logf("%s, QEMU %d:\n%s%s", host, pid, threads(pid), backtraces(pid))
			}
		}
	}
}

// threads lists a process's threads, each with its state, its processor time in ticks and where in the kernel it waits.
func threads(pid int) string {
	var out strings.Builder
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	for _, task := range tasks {
		stat, err := os.ReadFile(filepath.Join(task, "stat"))
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(rest) // from the state on, which is field 3 of proc_pid_stat(5)
		comm, _ := os.ReadFile(filepath.Join(task, "comm"))
		wchan, _ := os.ReadFile(filepath.Join(task, "wchan"))
		sched, _ := os.ReadFile(filepath.Join(task, "schedstat"))
		fmt.Fprintf(&out, "thread %s %s: %s, %s+%s ticks, in %s, ns run and waited for a processor, and times: %s\n", filepath.Base(task),
			strings.TrimSpace(string(comm)), fields[0], fields[11], fields[12], wchan, strings.TrimSpace(string(sched)))
	}
	return out.String()
}

// backtraces are those of a process's threads, where gdb is there; they stop it for a moment.
func backtraces(pid int) string {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	said, err := exec.CommandContext(ctx, "gdb", "-p", strconv.Itoa(pid), "-batch", "-ex", "set pagination off", "-ex", "thread apply all bt 12").Output()
	if err != nil {
		return ""
	}
	return string(said[max(0, len(said)-8000):])
}
