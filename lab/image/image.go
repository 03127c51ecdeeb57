// Package image finds what the lab's guests boot: the image tiny, and full Debian
// systems. The scripts image, guest-image and debian-image build them (see
// lab/image/build).
package image

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Variable names the environment variable with the folder of the image tiny to look
// in first. Other images are beside that folder.
const Variable = "GODWIT_IMAGE"

// Cmdline is what the kernel of a guest of the image tiny is to be started with. Locked down it makes no
// files for tracing: ten thousand, of 8 MiB, on kernels before 6.6.
const Cmdline = common + " lockdown=confidentiality"

// cmdlineOfRoot makes the first process hand the machine to the system on the disk
// (cmd/guest).
const cmdlineOfRoot = common + " switch-root"

// common is of every image. A panic ends the machine at once (panic=-1); with QEMU's -no-reboot that
// is an exit of QEMU. The kernel does not test its ciphers: emulated, that was a seventh of a guest's start.
// Nor does it take the lock prefixes out of its code where it has one processor (noreplace-smp): each place that is
// changed has what was translated of it thrown away, which took a twelfth of its own start, and emulated with one
// processor they cost nothing. With KVM and one processor they cost a little: these guests pay that there, too.
const common = "console=ttyS0 panic=-1 quiet loglevel=4 mitigations=off tsc=reliable no_timer_check nokaslr no5lvl random.trust_cpu=on cryptomgr.notests noreplace-smp"

// ErrMissing means that there is no image: `make build` makes one.
var ErrMissing = errors.New("guest image not found: run `make build`")

// Tiny is the image that `make build` makes.
const Tiny = "tiny"

// Files of an image's folder. RootFile is of all but tiny.
const (
	KernelFile = "vmlinuz"
	InitrdFile = "initrd.img"
	RootFile   = "root.squashfs"
)

// Image is what guests boot.
type Image struct {
	Kernel, Initrd, Cmdline string
	Root                    string // a read-only disk, shared by all guests; "" is none
}

// Find returns the paths of the kernel and the initial file system of the image tiny:
// from the folder that GODWIT_IMAGE names (that one alone, if it is set), else from
// beside the executable (../build/guest, ./guest), else from /var/lib/godwit/image.
func Find() (kernel, initrd string, err error) {
	for _, folder := range folders() {
		if kernel, initrd, err = in(folder); err == nil {
			return kernel, initrd, nil
		}
	}
	if os.Getenv(Variable) != "" {
		return "", "", err
	}
	return "", "", fmt.Errorf("%w (or name its folder in %s); looked in %q", ErrMissing, Variable, folders())
}

// folders are where the image tiny may be.
func folders() []string {
	if folder := os.Getenv(Variable); folder != "" {
		return []string{folder}
	}
	var folders []string
	if executable, err := os.Executable(); err == nil {
		if real, err := filepath.EvalSymlinks(executable); err == nil {
			executable = real
		}
		beside := filepath.Dir(executable)
		folders = append(folders, filepath.Join(beside, "..", "build", "guest"), filepath.Join(beside, "guest"))
	}
	return append(folders, "/var/lib/godwit/image")
}

func in(folder string) (kernel, initrd string, err error) {
	kernel, initrd = filepath.Join(folder, KernelFile), filepath.Join(folder, InitrdFile)
	for _, path := range []string{kernel, initrd} {
		if !there(path) {
			return "", "", fmt.Errorf("%w: %s", ErrMissing, path)
		}
	}
	return kernel, initrd, nil
}

func there(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Size() > 0
}

// Named finds an image by its name. All but tiny are looked for beside tiny's folder,
// in one of their own name.
func Named(name string) (Image, error) {
	if name == Tiny {
		kernel, initrd, err := Find()
		return Image{Kernel: kernel, Initrd: initrd, Cmdline: Cmdline}, err
	}
	for _, folder := range folders() {
		folder = filepath.Join(filepath.Dir(filepath.Clean(folder)), name)
		root := filepath.Join(folder, RootFile)
		kernel, initrd, err := in(folder)
		if err == nil && there(root) {
			return Image{Kernel: kernel, Initrd: initrd, Cmdline: cmdlineOfRoot, Root: root}, nil
		}
	}
	return Image{}, fmt.Errorf("guest image %s not found: run `scripts/image %s` in Godwit's source", name, name)
}

// buildLimit bounds the building of an image, which fetches some 100 MB once.
const buildLimit = 15 * time.Minute

// Ensure is Named, but has an image built first where Godwit's source is at hand, if
// it is missing or older than what goes into it. tell hears how far that is.
func Ensure(ctx context.Context, name string, tell func(string)) (Image, error) {
	script, ok := builder()
	if name == Tiny || !ok {
		return Named(name)
	}
	ctx, cancel := context.WithTimeout(ctx, buildLimit)
	defer cancel()
	command := exec.CommandContext(ctx, script, name)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGTERM) }
	command.WaitDelay = 10 * time.Second
	output, err := command.StdoutPipe()
	if err != nil {
		return Image{}, err
	}
	command.Stderr = command.Stdout
	if err := command.Start(); err != nil {
		return Image{}, err
	}
	last := ""
	for lines := bufio.NewScanner(output); lines.Scan(); {
		if last = strings.TrimSpace(lines.Text()); last != "" {
			tell(last)
		}
	}
	if err := command.Wait(); err != nil {
		return Image{}, fmt.Errorf("build guest image %s: %s", name, strings.TrimPrefix(last, "image: "+name+": "))
	}
	return Named(name)
}

// builder is the script that builds images, if this program lies in its source tree.
func builder() (string, bool) {
	for _, folder := range folders() {
		script := filepath.Join(folder, "..", "..", "scripts", "image")
		if there(script) && there(filepath.Join(folder, "..", "..", "go.mod")) {
			return script, true
		}
	}
	return "", false
}
