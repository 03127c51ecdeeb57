// Package image finds the kernel and the initial file system of the lab's guests.
// scripts/guest-image builds them (see lab/image/build).
package image

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Variable names the environment variable with the folder to look in first.
const Variable = "GODWIT_IMAGE"

// Cmdline is what the kernel of a guest is to be started with. A panic ends the
// machine at once (panic=-1); with QEMU's -no-reboot that is an exit of QEMU.
const Cmdline = "console=ttyS0 panic=-1 quiet loglevel=4 mitigations=off tsc=reliable no_timer_check nokaslr no5lvl random.trust_cpu=on"

// ErrMissing means that there is no image: `make build` makes one.
var ErrMissing = errors.New("guest image not found: run `make build`")

// Files of an image's folder.
const (
	KernelFile = "vmlinuz"
	InitrdFile = "initrd.img"
)

// Find returns the paths of the kernel and the initial file system: from the folder
// that GODWIT_IMAGE names (that one alone, if it is set), else from beside the
// executable (../build/guest, ./guest), else from /var/lib/godwit/image.
func Find() (kernel, initrd string, err error) {
	if folder := os.Getenv(Variable); folder != "" {
		return in(folder)
	}
	var folders []string
	if executable, err := os.Executable(); err == nil {
		if real, err := filepath.EvalSymlinks(executable); err == nil {
			executable = real
		}
		beside := filepath.Dir(executable)
		folders = append(folders, filepath.Join(beside, "..", "build", "guest"), filepath.Join(beside, "guest"))
	}
	folders = append(folders, "/var/lib/godwit/image")
	for _, folder := range folders {
		if kernel, initrd, err = in(folder); err == nil {
			return kernel, initrd, nil
		}
	}
	return "", "", fmt.Errorf("%w (or name its folder in %s); looked in %q", ErrMissing, Variable, folders)
}

func in(folder string) (kernel, initrd string, err error) {
	kernel, initrd = filepath.Join(folder, KernelFile), filepath.Join(folder, InitrdFile)
	for _, path := range []string{kernel, initrd} {
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
			return "", "", fmt.Errorf("%w: %s", ErrMissing, path)
		}
	}
	return kernel, initrd, nil
}
