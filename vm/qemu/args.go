package qemu

import (
	"encoding/json"
	"fmt"
	"strings"

	"godwit/vm"
)

// GuestPort is the name of the virtio-serial port that the guest's agent opens.
const GuestPort = "org.godwit.guest.0"

// PCI slots on the root bus. They are part of what a migration needs to agree.
const (
	slotSerial = 0x02
	slotNIC    = 0x03
	slotDisk   = 0x10
	slotRoot   = slotDisk + maxDisks // after the disks, which keep their names in the guest
)

// args returns QEMU's arguments. The QMP listener and the taps are inherited: qmpFD is the
// first one's number in the child, NIC i has tapFD+i.
func (s Spec) args(qmpFD, tapFD int) []string {
	a := []string{
		"-name", "guest=" + s.Name + ",debug-threads=on",
		"-nodefaults", "-no-user-config", "-display", "none",
		"-msg", "timestamp=on",
		"-pidfile", pidFile(s.Dir),
		"-machine", s.Machine + machineOptions,
		"-accel", accelOption(s.Accel),
		"-cpu", s.CPU,
		"-smp", fmt.Sprint(s.VCPUs),
		"-m", fmt.Sprintf("size=%dM", s.Memory>>20),
		"-rtc", "base=utc,clock=host",
		// A reset ends the process: with panic=-1 that shows a guest's panic.
		"-no-reboot",
		"-chardev", fmt.Sprintf("socket,id=qmp,fd=%d,server=on,wait=off", qmpFD),
		"-mon", "chardev=qmp,mode=control",
		"-chardev", "socket,id=look,server=on,wait=off,path=" + escape(lookSocket(s.Dir)),
		"-mon", "chardev=look,mode=control",
		"-chardev", "file,id=serial,append=on,path=" + escape(serialLog(s.Dir)),
		"-serial", "chardev:serial",
		"-device", fmt.Sprintf("virtio-serial-pci,id=ports,bus=pcie.0,addr=%#x,max_ports=4", slotSerial),
		"-chardev", "socket,id=guest,server=on,wait=off,path=" + escape(guestSocket(s.Dir)),
		"-device", "virtserialport,bus=ports.0,nr=1,chardev=guest,id=guestport,name=" + s.Port,
	}
	for i, n := range s.NICs {
		a = append(a,
			"-netdev", fmt.Sprintf("tap,id=%s,fd=%d,vhost=off", n.ID, tapFD+i),
			"-device", fmt.Sprintf("virtio-net-pci,id=nic-%s,netdev=%s,mac=%s,bus=pcie.0,addr=%#x,romfile=,%s=%t",
				n.ID, n.ID, n.MAC, slotNIC+i, guestAnnounces, s.Announces))
	}
	for i, d := range s.Disks {
		a = append(a, "-blockdev", blockdev(d),
			"-device", fmt.Sprintf("virtio-blk-pci,id=disk-%s,drive=%s,serial=%s,bus=pcie.0,addr=%#x", d.ID, d.ID, d.ID, slotDisk+i))
	}
	if s.Root != "" {
		a = append(a, "-blockdev", blockdev(vm.Disk{ID: rootNode, Path: s.Root, Format: "raw", ReadOnly: true}),
			"-device", fmt.Sprintf("virtio-blk-pci,id=disk-root,drive=%s,bus=pcie.0,addr=%#x", rootNode, slotRoot))
	}
	if s.Kernel != "" {
		a = append(a, "-kernel", s.Kernel)
		if s.Initrd != "" {
			a = append(a, "-initrd", s.Initrd)
		}
		if s.Cmdline != "" {
			a = append(a, "-append", s.Cmdline)
		}
	}
	if s.Incoming {
		a = append(a, "-S", "-incoming", "defer")
	}
	return a
}

// rootNode is the block node of Spec.Root.
const rootNode = "godwit-root"

// machineOptions leaves out devices that only cost time when nothing happens.
const machineOptions = ",usb=off,vmport=off,hpet=off,graphics=off,dump-guest-core=off"

func accelOption(accel string) string {
	if accel == "tcg" {
		return "tcg,thread=multi,tb-size=128" // MiB of translated code, at most
	}
	return accel
}

func blockdev(d vm.Disk) string {
	b, err := json.Marshal(map[string]any{
		"driver": d.Format, "node-name": d.ID, "read-only": d.ReadOnly, "discard": "unmap",
		"file": map[string]any{"driver": "file", "filename": d.Path, "discard": "unmap"},
	})
	if err != nil {
		panic(err) // strings and booleans always marshal
	}
	return string(b)
}

// escape doubles commas, as QEMU's option parser wants.
func escape(s string) string { return strings.ReplaceAll(s, ",", ",,") }
