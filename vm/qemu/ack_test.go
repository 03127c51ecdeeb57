package qemu

import (
	"strings"
	"testing"

	"godwit/vm/qemu/qmp"
)

func TestAcksLegacy(t *testing.T) {
	for line, want := range map[string]bool{
		"qemu-system-x86_64 -machine q35":                                            false,
		"qemu-system-x86_64 -machine pc-q35-11.1,usb=off":                            false,
		"qemu-system-x86_64 -machine pc-q35-12.0":                                    false,
		"qemu-system-x86_64 -machine pc-q35-11.0":                                    true,
		"qemu-system-x86_64 -machine pc-i440fx-9.2":                                  true,
		"qemu-system-x86_64 -machine q35 -global migration.switchover-ack-legacy=on": true,
		"qemu-system-x86_64 -machine q35 -name x-migration.switchover-ack-legacy=on": false,
	} {
		if got := acksLegacy([]byte(strings.ReplaceAll(line, " ", "\x00") + "\x00")); got != want {
			t.Errorf("%s: %v", line, got)
		}
	}
	if o := ackOptions(qmp.Version{Major: 11}); o != nil {
		t.Errorf("QEMU 11.0 refuses %q", o)
	}
	if len(ackOptions(qmp.Version{Major: 11, Minor: 1})) != 2 {
		t.Error("QEMU 11.1 is not told to wait")
	}
}
