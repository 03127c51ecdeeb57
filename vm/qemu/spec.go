package qemu

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"godwit/vm"
)

// Program is the QEMU that is run, looked up on PATH.
const Program = "qemu-system-x86_64"

// Spec is a guest's machine, and where and how to start it. What the guest can see of it
// (all but Dir, Incoming, the taps and the disks' paths) must be the same at both hosts.
type Spec struct {
	Name    string // letters, digits, '-', '_', '.'
	Memory  int64  // bytes, a multiple of 1 MiB
	VCPUs   int    // 0 is 1
	Accel   string // "kvm", "tcg", or "" for what ProbeAccel finds
	CPU     string // "" is host with KVM, max with TCG
	Machine string // "" is q35; at a destination the source's versioned name from Facts

	Kernel  string // "" boots from the first disk, or stays in the firmware
	Initrd  string
	Cmdline string

	NICs []NIC // at most 8
	// Announces: NICs have the guest itself announce where it is; at a destination as at the source (Facts.Quiet), else a
	// guest that uses it cannot come. Without it QEMU does, and leaves an emulated guest its first 100 ms for its clients.
	Announces bool
	Disks     []vm.Disk // at most 8; Size is not used
	// Root is a raw image that the guest boots from and never writes: the same file at
	// both hosts, so it isn't a disk that moves. "" is none.
	Root string
	Port string // name of the virtio-serial port to the guest's agent; "" is GuestPort

	Dir      string // made if missing; at most 90 bytes, because sockets live in it
	Incoming bool   // wait paused for a guest to come
}

// NIC is a virtio network card.
type NIC struct {
	ID  string // letters and digits
	MAC string
	// Tap is the card's open tap device. QEMU inherits a duplicate; this one stays the
	// caller's, and non-blocking mode is shared between the two.
	Tap *os.File
}

const (
	maxNICs  = 8
	maxDisks = 8
	maxDir   = 90 // sun_path is 108 bytes, unix(7)
)

var (
	nameRE = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)
	idRE   = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,30}$`)
)

// check says what QEMU would not take, or would misread.
func (s Spec) check() error {
	switch {
	case !nameRE.MatchString(s.Name):
		return fmt.Errorf("name %q: letters, digits, '-', '_' and '.' are allowed", s.Name)
	case s.Memory < 1<<20 || s.Memory%(1<<20) != 0:
		return fmt.Errorf("memory %d: not a whole number of MiB", s.Memory)
	case s.VCPUs < 0 || s.VCPUs > 255:
		return fmt.Errorf("vcpus %d: not 1 to 255", s.VCPUs)
	case s.Accel != "" && s.Accel != "kvm" && s.Accel != "tcg":
		return fmt.Errorf("accel %q: not kvm or tcg", s.Accel)
	case !strings.Contains(s.Machine, "q35"):
		return fmt.Errorf("machine %q: only q35 and its versions have the PCI slots we use", s.Machine)
	case !filepath.IsAbs(s.Dir) || len(s.Dir) > maxDir:
		return fmt.Errorf("dir %q: must be absolute and at most %d bytes long", s.Dir, maxDir)
	case len(s.NICs) > maxNICs:
		return fmt.Errorf("%d NICs: at most %d", len(s.NICs), maxNICs)
	case len(s.Disks) > maxDisks:
		return fmt.Errorf("%d disks: at most %d", len(s.Disks), maxDisks)
	}
	return errors.Join(s.checkNICs(), s.checkDisks())
}

func (s Spec) checkNICs() error {
	for _, n := range s.NICs {
		if !idRE.MatchString(n.ID) {
			return fmt.Errorf("nic %q: not an id", n.ID)
		}
		if mac, err := net.ParseMAC(n.MAC); err != nil || len(mac) != 6 {
			return fmt.Errorf("nic %s: %q is not a MAC address", n.ID, n.MAC)
		}
		if n.Tap == nil {
			return fmt.Errorf("nic %s: no tap", n.ID)
		}
	}
	return nil
}

func (s Spec) checkDisks() error {
	for _, d := range s.Disks {
		if !idRE.MatchString(d.ID) {
			return fmt.Errorf("disk %q: not an id", d.ID)
		}
		if d.Format != "raw" && d.Format != "qcow2" {
			return fmt.Errorf("disk %s: format %q is not raw or qcow2", d.ID, d.Format)
		}
	}
	return nil
}

// file names of the runtime directory
func qmpSocket(dir string) string   { return filepath.Join(dir, "qmp.sock") }
func lookSocket(dir string) string  { return filepath.Join(dir, "look.sock") }
func guestSocket(dir string) string { return filepath.Join(dir, "guest.sock") }
func pidFile(dir string) string     { return filepath.Join(dir, "pid") }
func serialLog(dir string) string   { return filepath.Join(dir, "serial.log") }
func qemuLog(dir string) string     { return filepath.Join(dir, "qemu.log") }
