package qemu

import "testing"

// TestUnit: a service, or Proxmox, may start a QEMU again that has ended; libvirt's scopes and people's start nothing.
func TestUnit(t *testing.T) {
	for text, want := range map[string]string{
		"0::/system.slice/web.service\n":                                                            "web.service",
		"0::/system.slice/system-qemu.slice/qemu@web.service\n":                                     "qemu@web.service",
		"0::/system.slice/web.service/payload\n":                                                    "web.service",
		"4:memory:/\n1:name=systemd:/system.slice/web.service\n0::/\n":                              "web.service",
		"0::/user.slice/user-1000.slice/user@1000.service/app.slice/web.service\n":                  "web.service",
		"0::/user.slice/user-1000.slice/user@1000.service/app.slice/app-shell.slice/vte-1f.scope\n": "",
		"0::/user.slice/user-0.slice/session-3.scope\n":                                             "",
		"0::/qemu.slice/100.scope\n":                                                                "100.scope",
		"0::/machine.slice/machine-qemu\\x2d1\\x2dweb.scope/libvirt/emulator\n":                     "",
		"4:memory:/system.slice/web.service\n0::/\n":                                                "",
		"0::/\n": "",
		"":       "",
	} {
		if got := unit(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
