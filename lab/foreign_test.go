package lab

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"godwit/agent/config"
	"godwit/lab/image"
	"godwit/netstate/netns"
	"godwit/vm/guest"
)

// A foreign guest is a QEMU that a person started, on taps of their own.
type foreign struct {
	dir   string
	host  *hostAgent
	cards int           // NICs
	done  chan struct{} // closed when its QEMU has ended
}

var foreignMACs = [2]string{"52:54:00:aa:01:0a", "52:54:00:aa:01:0b"}

const foreignMemory = 192 // MiB

var foreignTaps = [2]string{"tap-a", "tap-b"}

// foreignArgs is the machine with so many NICs; the rest differs from host to host.
func foreignArgs(kernel, initrd string, cards int) []string {
	args := []string{
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-machine", "q35", "-accel", "tcg", "-cpu", "max",
		"-kernel", kernel, "-initrd", initrd, "-append", image.Cmdline,
		"-device", "virtio-serial-pci,id=ports,bus=pcie.0,addr=2",
		"-device", "virtserialport,bus=ports.0,nr=1,chardev=guest,name=" + guest.PortName,
	}
	for i := range cards {
		args = append(args, "-device", fmt.Sprintf("virtio-net-pci,netdev=net%d,mac=%s,bus=pcie.0,addr=%d,romfile=", i, foreignMACs[i], 3+i))
	}
	return args
}

// startForeign boots a guest on a host as its user would, and gives it an address.
func startForeign(t *testing.T, w *world, host string, addr netip.Prefix, gateway netip.Addr) *foreign {
	t.Helper()
	return startForeignWith(t, w, host, addr, gateway, 2)
}

// startForeignWith gives it so many NICs, and what else its QEMU is told.
func startForeignWith(t *testing.T, w *world, host string, addr netip.Prefix, gateway netip.Addr, cards int, more ...string) *foreign {
	t.Helper()
	a := w.agents[host]
	f := &foreign{dir: t.TempDir(), host: a, cards: cards, done: make(chan struct{})}
	f.taps(t)
	args := append(foreignArgs(w.image.Kernel, w.image.Initrd, cards),
		"-m", fmt.Sprint(foreignMemory), "-serial", "file:"+f.dir+"/serial.log",
		"-qmp", "unix:"+f.qmp()+",server=on,wait=off",
		"-chardev", "socket,id=guest,server=on,wait=off,path="+f.channel())
	for i, tap := range foreignTaps[:cards] {
		args = append(args, "-netdev", fmt.Sprintf("tap,id=net%d,ifname=%s,script=no,downscript=no", i, tap))
	}
	cmd := exec.Command("qemu-system-x86_64", append(args, more...)...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := netns.Start(a.host.Namespace, cmd); err != nil {
		t.Fatal(err)
	}
	go func() {
		cmd.Wait()
		close(f.done)
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-f.done
	})
	f.configure(t, addr, gateway)
	return f
}

// taps makes its taps, as ports of its host's bridge.
func (f *foreign) taps(t *testing.T) {
	t.Helper()
	if err := netns.Do(f.host.host.Namespace, func() error {
		bridge, err := netlink.LinkByName(f.host.host.Bridge)
		if err != nil {
			return err
		}
		for _, name := range foreignTaps[:f.cards] {
			tap := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: name}, Mode: netlink.TUNTAP_MODE_TAP}
			if err := netlink.LinkAdd(tap); err != nil {
				return err
			}
			if err := netlink.LinkSetMaster(tap, bridge); err != nil {
				return err
			}
			if err := netlink.LinkSetUp(tap); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func (f *foreign) qmp() string { return filepath.Join(f.dir, "qmp.sock") }

func (f *foreign) channel() string { return filepath.Join(f.dir, "guest.sock") }

// configure does what a guest's own start-up would: it sets the address.
func (f *foreign) configure(t *testing.T, addr netip.Prefix, gateway netip.Addr) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		c, err := guest.Dial(ctx, f.channel())
		if err == nil {
			defer c.Close()
			if _, err := c.Configure(ctx, guest.Configure{
				MAC: foreignMACs[0], Addrs: []netip.Prefix{addr}, GatewayV4: gateway, Table: 100, Main: true,
			}); err != nil {
				t.Fatal(err)
			}
			return
		}
		select {
		case <-f.done:
			t.Fatal("qemu ended")
		case <-ctx.Done():
			t.Fatalf("guest does not answer: %v", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// describe writes the guest's description as its user would, each old replaced by new.
func (f *foreign) describe(t *testing.T, w *world, replace ...string) config.Description {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "name: web\nmemory: %dMiB\nqmp: %s\nchannel: %s\nnics:\n", foreignMemory, f.qmp(), f.channel())
	for i, tap := range foreignTaps[:f.cards] {
		fmt.Fprintf(&b, "  - {mac: %q, tap: %s}\n", foreignMACs[i], tap)
	}
	b.WriteString("start:\n  - qemu-system-x86_64\n")
	args := append(foreignArgs(w.image.Kernel, w.image.Initrd, f.cards),
		"-S", "-incoming", "defer", "-m", "{memory}", "-serial", "file:{dir}/serial.log",
		"-qmp", "unix:{qmp},server=on,wait=off",
		"-chardev", "socket,id=guest,server=on,wait=off,path={channel}")
	for i := range f.cards {
		args = append(args, "-netdev", fmt.Sprintf("tap,id=net%d,fd={fd%d}", i, i))
	}
	for _, word := range args {
		fmt.Fprintf(&b, "  - %q\n", word)
	}
	path := filepath.Join(t.TempDir(), "web.yaml")
	text := strings.NewReplacer(replace...).Replace(b.String())
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := config.LoadDescription(path)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
