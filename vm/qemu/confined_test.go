package qemu

import "testing"

// TestProfile: a process that AppArmor lets do all, or only watches, is not confined.
func TestProfile(t *testing.T) {
	for label, want := range map[string]string{
		"libvirt-1f (enforce)\n":        "libvirt-1f",
		"libvirt-1f (kill)\n":           "libvirt-1f",
		"libvirt-1f (user)\n":           "libvirt-1f",
		"qemu//&libvirt-1f (mixed)\n":   "qemu//&libvirt-1f",
		"libvirt-1f (complain)\n":       "",
		"a profile (unconfined)\n":      "",
		"unconfined\n":                  "",
		"":                              "",
		"/usr/bin/a (b) c (enforce)\n":  "/usr/bin/a (b) c",
		"/usr/bin/a (b) c (complain)\n": "",
	} {
		if got := profile(label); got != want {
			t.Errorf("%q: %q, want %q", label, got, want)
		}
	}
}
