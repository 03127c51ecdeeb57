package image

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"godwit/internal/need"
)

// TestWithoutPackageLists: where apt has none yet they are fetched, and where that cannot be it is said; but a kernel
// that was fetched before will do, the newest. Go and apt have stand-ins.
func TestWithoutPackageLists(t *testing.T) {
	need.Program(t, "busybox")
	need.Program(t, "iperf3")
	root, file := sourceOf(t, "guest-image")
	file("scripts/guest-program", "#!/bin/sh\n", 0o755)
	file("bin/go", "#!/bin/sh\n", 0o755)
	file("bin/apt-cache", "#!/bin/sh\necho 'E: No packages found' >&2\nexit 100\n", 0o755)
	file("bin/apt-get", "#!/bin/sh\necho \"$@\" >>\"$0.log\"\nexit 100\n", 0o755)
	p := run(t, root, "scripts/guest-image")
	if said := "run apt-get update"; p.succeeds() || !strings.Contains(p.said.String(), said) {
		t.Errorf("no kernel: %v: %s; want an error that says %s", p.err, &p.said, said)
	}
	asked := filepath.Join(root, "bin/apt-get.log")
	if said, err := os.ReadFile(asked); string(said) != "-q update\n" {
		t.Errorf("apt-get was asked for %q, %v", said, err)
	}
	for name, complete := range map[string]bool{"6.1.0-9": true, "6.1.0-10": true, "6.1.0-11": false} {
		tree := "build/kernel/linux-image-" + name + "-cloud-amd64/"
		file(tree+"boot/vmlinuz-"+name, name, 0o644)
		file(tree+"lib/modules/"+name+"/modules.dep", "", 0o644)
		if complete {
			file(tree+"complete", "", 0o644)
		}
	}
	if p := run(t, root, "scripts/guest-image"); !p.succeeds() {
		t.Errorf("with kernels: %v: %s", p.err, &p.said)
	}
	if kernel, err := os.ReadFile(filepath.Join(root, "build/guest/vmlinuz")); string(kernel) != "6.1.0-10" {
		t.Errorf("the kernel is %q, %v", kernel, err)
	}
	if said, _ := os.ReadFile(asked); string(said) != "-q update\n" {
		t.Errorf("with kernels apt-get was asked for more: %q", said)
	}
}
