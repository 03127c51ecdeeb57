package qemu

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"godwit/vm/qemu/qmp"
)

// Host is what this machine offers to a guest, without starting one.
type Host struct {
	Version qmp.Version
	Accel   string
	// CPU is for people: with KVM it names the processor, with TCG it is "max", as QEMU's version decides there. What
	// bars a guest from a host is compared elsewhere, by what its processor has.
	CPU string
}

// ThisHost probes QEMU, the accelerator and the processor.
func ThisHost(ctx context.Context) (Host, error) {
	v, err := installedVersion(ctx)
	if err != nil {
		return Host{}, err
	}
	h := Host{Version: v, Accel: ProbeAccel(), CPU: "max"}
	if h.Accel == "kvm" {
		info, err := os.ReadFile("/proc/cpuinfo")
		if err != nil {
			return Host{}, fmt.Errorf("probe processor: %w", err)
		}
		h.CPU = processor(info)
	}
	return h, nil
}

var version struct {
	sync.Mutex
	of os.FileInfo // the program that was asked; nil: none was
	is qmp.Version
}

// installedVersion asks the installed QEMU: once, and again when another is in its place.
func installedVersion(ctx context.Context) (qmp.Version, error) {
	version.Lock()
	defer version.Unlock()
	now := programNow()
	if version.of != nil && now != nil && os.SameFile(now, version.of) && now.ModTime().Equal(version.of.ModTime()) && now.Size() == version.of.Size() {
		return version.is, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, Program, "--version").Output()
	if err != nil {
		return qmp.Version{}, fmt.Errorf("run %s --version: %w", Program, err)
	}
	v, err := parseVersion(out)
	if err != nil {
		return qmp.Version{}, err
	}
	version.is, version.of = v, now
	return v, nil
}

// programNow is what is known of Program's file, nil where it is not found.
func programNow() os.FileInfo {
	path, err := exec.LookPath(Program)
	if err != nil {
		return nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil
	}
	return info
}

var versionRE = regexp.MustCompile(`(?m)^QEMU emulator version (\d+)\.(\d+)\.(\d+)`)

func parseVersion(out []byte) (qmp.Version, error) {
	m := versionRE.FindSubmatch(out)
	if m == nil {
		return qmp.Version{}, fmt.Errorf("read QEMU's version: not in %.60q", out)
	}
	var n [3]int
	for i := range n {
		var err error
		if n[i], err = strconv.Atoi(string(m[i+1])); err != nil {
			return qmp.Version{}, fmt.Errorf("read QEMU's version: %w", err)
		}
	}
	return qmp.Version{Major: n[0], Minor: n[1], Micro: n[2]}, nil
}

// ProbeAccel returns "kvm" only where guests truly run in it: an x86 processor shows vmx
// or svm (a nested, paravirtual KVM without them opens, and hangs a stock kernel), and
// /dev/kvm makes a virtual machine. Otherwise "tcg". The guests are x86, so on others it is "tcg" too.
func ProbeAccel() string {
	if runtime.GOARCH != "amd64" {
		return "tcg"
	}
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil || !virtualises(info) || !makesMachines("/dev/kvm") {
		return "tcg"
	}
	return "kvm"
}

// makesMachines says whether a device does what a QEMU with KVM begins with. It can be opened, and yet does not, where
// the processor's virtualisation is another hypervisor's just now, such as VirtualBox's (EBUSY, hardware_enable in
// Linux's arch/x86/kvm).
func makesMachines(device string) bool {
	const create = 0xAE01 // KVM_CREATE_VM
	f, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	for {
		machine, err := unix.IoctlRetInt(int(f.Fd()), create)
		if err == nil {
			unix.Close(machine)
		}
		if !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
}

// cpuinfo returns the fields of the first processor.
func cpuinfo(info []byte) map[string]string {
	fields := map[string]string{}
	lines := bufio.NewScanner(bytes.NewReader(info))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		key, value, ok := strings.Cut(lines.Text(), ":")
		if !ok {
			break
		}
		fields[strings.TrimSpace(key)] = strings.TrimSpace(value)
	}
	return fields
}

func virtualises(info []byte) bool {
	flags := strings.Fields(cpuinfo(info)["flags"])
	return slices.Contains(flags, "vmx") || slices.Contains(flags, "svm")
}

func processor(info []byte) string {
	f := cpuinfo(info)
	return fmt.Sprintf("%s (family %s model %s stepping %s)", f["model name"], f["cpu family"], f["model"], f["stepping"])
}
