package hold

import (
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

// find looks for the descriptor of a tap.
func find(pid int, tap string) (int, error) {
	taps, err := Taps(pid)
	if err != nil {
		return 0, err
	}
	for fd, name := range taps {
		if name == tap {
			return fd, nil
		}
	}
	return 0, fmt.Errorf("it has none of that name")
}

// Taps are the names of the taps that a process has, by descriptor: those whose fdinfo says "iff: TAP".
func Taps(pid int) (map[int]string, error) {
	dir := fmt.Sprintf("/proc/%d/fdinfo", pid)
	infos, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	taps := map[int]string{}
	for _, info := range infos {
		text, err := os.ReadFile(filepath.Join(dir, info.Name()))
		if err != nil {
			continue // closed meanwhile
		}
		for line := range strings.Lines(string(text)) {
			if name, ok := strings.CutPrefix(line, "iff:"); ok {
				fd, err := strconv.Atoi(info.Name())
				if err != nil {
					return nil, err
				}
				taps[fd] = strings.TrimSpace(name)
			}
		}
	}
	return taps, nil
}
