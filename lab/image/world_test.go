package image

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"godwit/internal/need"
	"godwit/netstate/mptcp"
	"godwit/vm/guest"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A world is one guest with two NICs on one bridge. The bridge, in the test's own
// namespace, is the gateway of both subnets, and the client.
type world struct {
	t      *testing.T
	dir    string
	bridge netlink.Link
	qemu   *exec.Cmd
	exited chan error
	client *guest.Client
}

var macs = [2]string{"52:54:00:00:01:0a", "52:54:00:00:01:0b"}

// The client's addresses, which are the guest's gateways, and the guest's.
const (
	gatewayA, gatewayB = "10.1.1.1", "10.2.1.1"
	guestA, guestB     = "10.1.1.10", "10.2.1.10"
)

// start boots a guest, with a disk of 16 MiB, and dials its channel.
func start(t *testing.T) *world {
	t.Helper()
	need.QEMU(t)
	if os.Getenv(Variable) == "" { // set it to test another kernel's image
		folder, err := filepath.Abs("../../build/guest")
		if err != nil {
			t.Fatal(err)
		}
		need.File(t, filepath.Join(folder, InitrdFile))
		t.Setenv(Variable, folder)
	}
	kernel, initrd, err := Find()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, dir: t.TempDir(), exited: make(chan error, 1)}
	taps := w.network(t)
	disk := filepath.Join(w.dir, "disk")
	if err := os.WriteFile(disk, make([]byte, 16<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	arguments := []string{"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-M", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-m", "256", "-smp", "1",
		"-kernel", kernel, "-initrd", initrd, "-append", Cmdline,
		"-serial", "file:" + w.dir + "/serial.log",
		"-device", "virtio-serial-pci", "-chardev", "socket,id=g,server=on,wait=off,path=" + w.socket(),
		"-device", "virtserialport,chardev=g,name=" + guest.PortName,
		"-drive", "if=none,id=d,format=raw,file=" + disk, "-device", "virtio-blk-pci,drive=d"}
	for i, tap := range taps {
		id := "n" + string('0'+rune(i))
		arguments = append(arguments, "-netdev", "tap,script=no,downscript=no,vhost=off,id="+id+",ifname="+tap,
			"-device", "virtio-net-pci,romfile=,netdev="+id+",mac="+macs[i])
	}
	begin := time.Now()
	w.qemu = exec.Command("qemu-system-x86_64", arguments...)
	w.qemu.Stdout, w.qemu.Stderr = os.Stdout, os.Stderr
	w.qemu.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := w.qemu.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { w.exited <- w.qemu.Wait() }()
	t.Cleanup(func() { w.end(t) })
	w.client = w.dial(t)
	info, err := w.client.Info(t.Context())
	t.Logf("booted to the channel in %v, of which the guest ran %d ms: %v", time.Since(begin), info.UptimeMS, err)
	return w
}

func (w *world) socket() string { return w.dir + "/guest.sock" }

func (w *world) dial(t *testing.T) *guest.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	for {
		client, err := guest.Dial(ctx, w.socket())
		if err == nil {
			t.Cleanup(func() { client.Close() })
			return client
		}
		if ctx.Err() != nil || !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("%v\n%s", err, w.console())
		}
		time.Sleep(20 * time.Millisecond) // QEMU has not made its socket yet
	}
}

func (w *world) console() []byte {
	content, _ := os.ReadFile(w.dir + "/serial.log")
	return content
}

func (w *world) end(t *testing.T) {
	if w.qemu.ProcessState == nil {
		_ = w.qemu.Process.Kill()
	}
	select {
	case <-w.exited:
	case <-time.After(5 * time.Second):
		t.Error("qemu does not end")
	}
	if t.Failed() {
		t.Logf("console:\n%s", w.console())
	}
	links, _ := netlink.LinkList()
	for _, link := range links {
		if link.Type() == "tuntap" || link.Type() == "bridge" {
			_ = netlink.LinkDel(link)
		}
	}
}

// network makes the bridge with two taps, and lets the client join announced addresses.
func (w *world) network(t *testing.T) [2]string {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(mptcp.SetLimits(8, 8))
	lo, err := netlink.LinkByName("lo")
	must(err)
	must(netlink.LinkSetUp(lo))
	w.bridge = &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
	must(netlink.LinkAdd(w.bridge))
	must(netlink.LinkSetUp(w.bridge))
	for _, address := range []string{gatewayA + "/24", gatewayB + "/24", "fd01::1/64", "fd02::1/64"} {
		addr, err := netlink.ParseAddr(address)
		must(err)
		addr.Flags = unix.IFA_F_NODAD
		if addr.IP.To4() != nil {
			addr.Flags = 0
		}
		must(netlink.AddrAdd(w.bridge, addr))
	}
	taps := [2]string{"tap0", "tap1"}
	for _, name := range taps {
		tap := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: name}, Mode: netlink.TUNTAP_MODE_TAP}
		must(netlink.LinkAdd(tap))
		must(netlink.LinkSetMaster(tap, w.bridge))
		must(netlink.LinkSetUp(tap))
	}
	return taps
}
