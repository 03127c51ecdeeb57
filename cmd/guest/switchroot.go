package main

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// switchRootArgument, on the kernel's command line, makes the first process hand the
// machine to the system on a disk.
const switchRootArgument = "switch-root"

// rootWait bounds the wait for the disk, and rootMagic is how its squashfs begins.
const (
	rootWait  = 10 * time.Second
	rootMagic = "hsqs"
)

// switchRoot finds the disk with a read-only system, puts a layer in memory on top,
// installs the helper there as a user would (packaging/godwit-guest.service), and
// becomes that system's own first process. It returns on failure only.
func switchRoot() error {
	if err := mountAll(); err != nil {
		return err
	}
	if err := loadModules(); err != nil {
		return err
	}
	device, err := rootDevice()
	if err != nil {
		return err
	}
	if err := mountRoot(device); err != nil {
		return err
	}
	if err := installHelper("/root"); err != nil {
		return err
	}
	for _, at := range []string{"/proc", "/sys", "/dev", "/run"} {
		if err := unix.Mount(at, "/root"+at, "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("move %s: %w", at, err)
		}
	}
	// What is left here would be memory for nothing.
	for _, at := range []string{"/init", "/lib", "/godwit-guest.service"} {
		if err := os.RemoveAll(at); err != nil {
			return err
		}
	}
	if err := os.Chdir("/root"); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move the root: %w", err)
	}
	if err := errors.Join(unix.Chroot("."), os.Chdir("/")); err != nil {
		return err
	}
	return unix.Exec("/sbin/init", []string{"/sbin/init"}, []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "TERM=linux"})
}

// rootDevice waits for the disk that begins like a squashfs.
func rootDevice() (string, error) {
	for start := time.Now(); time.Since(start) < rootWait; time.Sleep(10 * time.Millisecond) {
		disks, err := filepath.Glob("/dev/vd[a-z]")
		if err != nil {
			return "", err
		}
		for _, disk := range disks {
			file, err := os.Open(disk)
			if err != nil {
				continue
			}
			magic := make([]byte, len(rootMagic))
			_, err = file.Read(magic)
			file.Close()
			if err == nil && string(magic) == rootMagic {
				return disk, nil
			}
		}
	}
	return "", fmt.Errorf("no disk with the system came within %v", rootWait)
}

// mountRoot mounts the disk with a writable layer on top at /root.
func mountRoot(device string) error {
	for _, at := range []string{"/lower", "/layer"} {
		if err := os.MkdirAll(at, 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount(device, "/lower", "squashfs", unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("mount %s: %w", device, err)
	}
	if err := unix.Mount("tmpfs", "/layer", "tmpfs", 0, "size=60%,mode=755"); err != nil {
		return fmt.Errorf("mount the layer in memory: %w", err)
	}
	for _, at := range []string{"/layer/upper", "/layer/work"} {
		if err := os.MkdirAll(at, 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount("overlay", "/root", "overlay", 0, "lowerdir=/lower,upperdir=/layer/upper,workdir=/layer/work"); err != nil {
		return fmt.Errorf("mount the root: %w", err)
	}
	return nil
}

// helperDropIn makes the helper serve the lab's traffic too, which comes before nobody
// else's work, and say on the console what it does.
const helperDropIn = `[Service]
ExecStart=
ExecStart=/usr/sbin/godwit-guest serve --lab
Nice=0
StandardOutput=journal+console
StandardError=journal+console
`

// installHelper puts the helper and what tells guests apart into the system at root.
func installHelper(root string) error {
	id := make([]byte, 16)
	rand.Read(id)
	program, err := os.ReadFile("/init")
	if err != nil {
		return err
	}
	unit, err := os.ReadFile("/godwit-guest.service")
	if err != nil {
		return err
	}
	for _, f := range []struct {
		path    string
		mode    os.FileMode
		content []byte
	}{
		{"/usr/sbin/godwit-guest", 0o755, program},
		{"/etc/systemd/system/godwit-guest.service", 0o644, unit},
		{"/etc/systemd/system/godwit-guest.service.d/lab.conf", 0o644, []byte(helperDropIn)},
		{"/etc/machine-id", 0o444, []byte(hex.EncodeToString(id) + "\n")},
	} {
		if err := os.MkdirAll(filepath.Dir(root+f.path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(root+f.path, f.content, f.mode); err != nil {
			return err
		}
	}
	wants := root + "/etc/systemd/system/multi-user.target.wants"
	if err := os.MkdirAll(wants, 0o755); err != nil {
		return err
	}
	return os.Symlink("/etc/systemd/system/godwit-guest.service", filepath.Join(wants, "godwit-guest.service"))
}
