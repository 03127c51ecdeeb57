package qemu

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"

	"godwit/vm"
	"godwit/vm/qemu/qmp"
)

// switchover-ack came with QEMU 8.1. From 11.1 on a source waits for the message on the
// return path only where the property switchover-ack-legacy of its migration object is
// on; else both ends agree in another way, of which we have no part. Machine types up to
// 11.0 have it on, and older QEMUs refuse to hear of it.
const legacyAck = "migration.switchover-ack-legacy=on"

// ackOptions are the arguments with which a QEMU of that version waits for the message.
func ackOptions(v qmp.Version) []string {
	if v.AtLeast(11, 1) {
		return []string{"-global", legacyAck}
	}
	return nil
}

// hold is what this QEMU offers.
func (p *Process) hold() vm.Hold {
	v := p.Version()
	switch {
	case !v.AtLeast(8, 1):
		return vm.HoldLowBandwidth
	case !v.AtLeast(11, 1):
		return vm.HoldAck
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid))
	if err == nil && acksLegacy(line) {
		return vm.HoldAck
	}
	return vm.HoldLowBandwidth
}

var machineVersion = regexp.MustCompile(`pc-(?:q35|i440fx)-(\d+)\.(\d+)`)

// acksLegacy says whether a QEMU from 11.1 on with that command line (arguments ended by
// zero bytes) waits for the message. A machine type that names no version is the newest.
func acksLegacy(cmdline []byte) bool {
	if bytes.Contains(cmdline, []byte("\x00"+legacyAck+"\x00")) {
		return true
	}
	m := machineVersion.FindSubmatch(cmdline)
	if m == nil {
		return false
	}
	major, _ := strconv.Atoi(string(m[1]))
	minor, _ := strconv.Atoi(string(m[2]))
	return major < 11 || major == 11 && minor < 1
}

// installed is the version of the QEMU that Start runs, zero where it cannot be told:
// then starting it says why.
func installed(ctx context.Context) qmp.Version {
	v, err := installedVersion(ctx)
	if err != nil {
		return qmp.Version{}
	}
	return v
}
