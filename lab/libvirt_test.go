package lab

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"godwit/agent/describe"
	"godwit/internal/need"
	"godwit/lab/image"
	"godwit/lab/traffic"
	"godwit/migration"
	"godwit/netstate/netns"
)

// libvirtDomain is the guest as virt-install would write it, with a monitor of its own for Godwit.
const libvirtDomain = `<domain type='qemu' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
  <name>web</name><memory unit='MiB'>%d</memory><vcpu>1</vcpu>
  <os><type arch='x86_64' machine='q35'>hvm</type><kernel>%s</kernel><initrd>%s</initrd><cmdline>%s</cmdline></os>
  <features><acpi/></features><cpu mode='maximum'/>
  <devices>
    <disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='%[5]s/web.qcow2'/><target dev='vda' bus='virtio'/></disk>
    <interface type='ethernet'><mac address='%[6]s'/><target dev='tap-a' managed='no'/><model type='virtio'/></interface>
    <interface type='ethernet'><mac address='%[7]s'/><target dev='tap-b' managed='no'/><model type='virtio'/></interface>
    <channel type='unix'><source mode='bind' path='%[5]s/guest.sock'/><target type='virtio' name='org.godwit.guest.0'/></channel>
    <serial type='pty'/><console type='pty'/><graphics type='vnc' port='-1' listen='127.0.0.1'/>
  </devices>
  <qemu:commandline><qemu:arg value='-qmp'/><qemu:arg value='unix:%[5]s/qmp.sock,server=on,wait=off'/></qemu:commandline>
</domain>`

// libvirtDaemon runs a libvirtd beside the machine's, whose folders are its own, in a mount namespace that ends with
// it, creates the domain of dir, and says what becomes of it until the file end is there.
const libvirtDaemon = `set -e
cd %q
mkdir -p /etc/libvirt /run/libvirt /var/lib/libvirt /var/cache/libvirt etc
printf '%%s\n' 'security_driver = "none"' 'cgroup_controllers = []' 'namespaces = []' 'stdio_handler = "file"' 'user = "root"' 'group = "root"' >etc/qemu.conf
mount --make-rprivate /
mount --bind etc /etc/libvirt
mount -t tmpfs none /run/libvirt
mount -t tmpfs none /var/lib/libvirt
mount -t tmpfs none /var/cache/libvirt
libvirtd --pid-file "$PWD/libvirtd.pid" &
trap 'kill $!; wait' EXIT
for try in $(seq 100); do virsh -q uri >uri 2>&1 && break; sleep 0.3; done
virsh -q create domain.xml
while [ ! -e end ]; do virsh -q list --all; sleep 1; done`

// startOfLibvirt has libvirt boot the guest.
func startOfLibvirt(t *testing.T, w *world, a *hostAgent) *foreign {
	t.Helper()
	for _, program := range []string{"libvirtd", "virsh", "qemu-img"} {
		need.Program(t, program)
	}
	f := &foreign{dir: t.TempDir(), host: a, cards: 2, done: make(chan struct{})}
	f.taps(t)
	domain := fmt.Sprintf(libvirtDomain, foreignMemory, w.image.Kernel, w.image.Initrd, image.Cmdline, f.dir, foreignMACs[0], foreignMACs[1])
	if err := os.WriteFile(filepath.Join(f.dir, "domain.xml"), []byte(domain), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("qemu-img", "create", "-q", "-f", "qcow2", f.dir+"/web.qcow2", "32M").CombinedOutput(); err != nil {
		t.Fatalf("qemu-img: %v: %s", err, out)
	}
	said := new(strings.Builder)
	cmd := exec.Command("unshare", "--mount", "sh", "-c", fmt.Sprintf(libvirtDaemon, f.dir))
	cmd.Env = append(os.Environ(), "LIBVIRT_DEFAULT_URI=qemu:///system")
	cmd.Stdout, cmd.Stderr = said, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := netns.Start(a.host.Namespace, cmd); err != nil {
		t.Fatal(err)
	}
	go func() {
		cmd.Wait()
		close(f.done)
	}()
	t.Cleanup(func() {
		os.WriteFile(filepath.Join(f.dir, "end"), nil, 0o600)
		<-f.done
		if t.Failed() {
			t.Logf("libvirt: %s", said)
		}
	})
	f.configure(t, netip.MustParsePrefix("10.1.1.50/24"), netip.MustParseAddr("10.1.1.1"))
	return f
}

// TestGuestOfLibvirtMoves takes a guest of libvirt away, by the description that is made of it.
func TestGuestOfLibvirtMoves(t *testing.T) {
	w := buildWorld(t, twoSites)
	montreal, sanjose := w.agents["montreal"], w.agents["sanjose"]
	f := startOfLibvirt(t, w, montreal)
	if err := w.clients["phone"].Start(traffic.Flow{Name: "ticks", Kind: traffic.Ticks, Target: netip.MustParseAddr("10.1.1.50"), MPTCP: true}); err != nil {
		t.Fatal(err)
	}
	running, err := describe.Look(t.Context(), f.qmp())
	if err != nil {
		t.Fatal(err)
	}
	found, err := describe.Of(running)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := montreal.client.StartGuest(t.Context(), found.Description); err != nil {
		t.Fatalf("%v, of %s", err, found.YAML())
	}
	was := only(t, montreal)
	if rep := migrate(t, montreal, "sanjose"); rep.Outcome != migration.Completed {
		t.Fatalf("montreal → sanjose: %s: %v", rep.Outcome, rep.Problem)
	}
	only(t, sanjose)
	t.Cleanup(func() { os.RemoveAll(w.disksOf("sanjose")) }) // it is no scenario's guest, whose disk may stay
	for wait := need.Patient(20 * time.Second); syscall.Kill(was.PID, 0) == nil; time.Sleep(50 * time.Millisecond) {
		if wait.Over() {
			t.Fatal("libvirt's QEMU still runs")
		}
	}
	tickedOn(t, w)
}
