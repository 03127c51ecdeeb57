package child

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Ours says whether a process is of our own user; one of which that is not known is not.
func Ours(pid int) bool {
	ours, err := IsOurs(pid)
	return ours && err == nil
}

// IsOurs says whether a process is of our own user. Who looks for one by its command line must ask: anybody may give
// theirs any. A program that runs as its owner (setuid) is of who started it. The error is that it is not known, as
// where no file can be opened just now; a process that has ended is nobody's.
func IsOurs(pid int) (bool, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(string(status)) {
		if ids, ok := strings.CutPrefix(line, "Uid:"); ok { // real, effective, saved, of files: proc_pid_status(5)
			real, _, _ := strings.Cut(strings.TrimSpace(ids), "\t")
			return real == strconv.Itoa(os.Getuid()), nil
		}
	}
	return false, nil
}
