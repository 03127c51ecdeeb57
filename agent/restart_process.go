package agent

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"godwit/internal/clock"
)

// Who started a guest that was adopted may start it again: when its host has booted, or when its QEMU has ended. It is
// found by the same socket, and has the same NICs, and is another: nothing of what was moved is in it.

// processOf tells a process from every other that has its number later, also after a boot of the host; "": it is not known.
func processOf(pid int) string {
	boot := clock.Boot()
	if boot == "" {
		return ""
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	const begun = 22 - 3 // starttime, of the fields that follow the command's name (proc_pid_stat(5))
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) <= begun {
		return ""
	}
	return fmt.Sprintf("%d begun at %s, boot %s", pid, fields[begun], boot)
}

// another says whether the QEMU that was found is not the one with which the migration began.
func (m *outgoing) another() bool {
	if m.process == "" || !m.guest.Alive() {
		return false
	}
	now := processOf(m.guest.Machine().PID())
	return now != "" && now != m.process
}
