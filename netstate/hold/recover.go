package hold

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Recover copies the descriptor of a tap out of the process that has it (QEMU's),
// for an agent that was restarted and lost its own. Needs root and Linux 5.6.
func Recover(pid int, tap string) (*os.File, error) {
	fd, err := find(pid, tap)
	if err != nil {
		return nil, fmt.Errorf("recover tap %s of process %d: %w", tap, pid, err)
	}
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("recover tap %s of process %d: %w", tap, pid, err)
	}
	defer unix.Close(process)
	copied, err := unix.PidfdGetfd(process, fd, 0)
	if err != nil {
		return nil, fmt.Errorf("recover tap %s of process %d: %w", tap, pid, err)
	}
	return os.NewFile(uintptr(copied), "tap "+tap), nil
}

// find looks for the descriptor whose fdinfo says "iff: TAP".
func find(pid int, tap string) (int, error) {
	infos, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	if err != nil {
		return 0, err
	}
	for _, info := range infos {
		f, err := os.Open(info)
		if err != nil {
			continue
		}
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			if name, ok := strings.CutPrefix(lines.Text(), "iff:"); ok && strings.TrimSpace(name) == tap {
				f.Close()
				return strconv.Atoi(filepath.Base(info))
			}
		}
		f.Close()
	}
	return 0, fmt.Errorf("it has none of that name")
}
