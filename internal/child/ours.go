package child

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Ours says whether a process is of our own user. Who looks for one by its command line must ask: anybody may give theirs any.
// A program that runs as its owner (setuid) is of who started it.
func Ours(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(status)) {
		if ids, ok := strings.CutPrefix(line, "Uid:"); ok { // real, effective, saved, of files: proc_pid_status(5)
			real, _, _ := strings.Cut(strings.TrimSpace(ids), "\t")
			return real == strconv.Itoa(os.Getuid())
		}
	}
	return false
}
