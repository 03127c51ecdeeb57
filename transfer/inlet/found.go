package inlet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"godwit/internal/child"
)

// Process is an inlet that runs.
type Process struct {
	PID    int
	Socket string
}

// Found lists the inlets whose sockets are in a directory directly below root, whether or
// not the sockets are there still. They are not asked: that would cut their proxies off.
func Found(root string) ([]Process, error) {
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	var out []Process
	for _, line := range lines {
		var p Process
		if _, err := fmt.Sscanf(line, "/proc/%d/", &p.PID); err != nil {
			continue
		}
		if p.Socket = socketOf(p.PID); p.Socket != "" && filepath.Dir(filepath.Dir(p.Socket)) == filepath.Clean(root) {
			out = append(out, p)
		}
	}
	return out, nil
}

// socketOf is that of an inlet of our user, by its command line; "" of any other process.
func socketOf(pid int) string {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return ""
	}
	words := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
	if len(words) != 3 || words[1] != "_inlet" || !child.Ours(pid) {
		return ""
	}
	return words[2]
}

// End ends an inlet that Found has listed, and returns when it is gone. A guest that waits
// for pages of it waits for ever then.
func End(ctx context.Context, p Process) error {
	for socketOf(p.PID) == p.Socket {
		if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil && err != syscall.ESRCH { //nolint:errorlint // an errno
			return fmt.Errorf("end inlet %d: %w", p.PID, err)
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("end inlet %d: %w", p.PID, ctx.Err())
		}
	}
	return nil
}
