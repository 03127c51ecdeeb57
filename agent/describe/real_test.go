package describe_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"godwit/agent/describe"
	"godwit/internal/need"
	"godwit/vm"
	"godwit/vm/qemu"
)

func image(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("qemu-img", append([]string{"create", "-q"}, args...)...).CombinedOutput(); err != nil {
		t.Fatalf("qemu-img: %v: %s", err, out)
	}
}

// TestGuestComesToWhatIsDescribed starts a machine as a person might, and has it move to one that
// its description starts: QEMU takes it there only where both have the same devices.
func TestGuestComesToWhatIsDescribed(t *testing.T) {
	need.QEMU(t)
	need.Program(t, "qemu-img")
	here, there := t.TempDir(), t.TempDir()
	socket := filepath.Join(here, "qmp.sock")
	image(t, "-f", "qcow2", filepath.Join(here, "root.qcow2"), "8M")
	image(t, "-f", "qcow2", filepath.Join(here, "data.qcow2"), "8M")
	for _, name := range []string{"disk1", "disk2", "disk3"} {
		image(t, "-f", "raw", filepath.Join(there, name), "8M")
	}
	image(t, "-f", "raw", filepath.Join(here, "floppy"), "1440k")
	image(t, "-f", "raw", filepath.Join(there, "disk0"), "1440k")
	image(t, "-f", "raw", filepath.Join(here, "a,b.iso"), "8M")
	cmd := exec.Command(qemu.Program, "-name", "web", "-M", "q35,accel=tcg", "-m", "size=64M", "-smp", "2", "-nographic", "-chardev", "stdio,id=m,mux=on", "-mon", "m", "-serial", "chardev:m", "-fda", "floppy",
		"-drive", "file=root.qcow2,if=virtio,discard=unmap,lazy-refcounts=on,throttling.iops-total=100", "-cdrom", "a,b.iso",
		"-object", "throttle-group,id=t", "-blockdev", `{"driver": "throttle", "node-name": "data", "throttle-group": "t",
			"file": {"driver": "qcow2", "lazy-refcounts": true, "file": {"driver": "file", "filename": "`+here+`/data.qcow2"}}}`,
		"-device", "virtio-blk-pci,drive=data", "-device", "virtio-serial", "-chardev", "socket,id=c,path="+here+"/port.sock,server,nowait",
		"-device", "virtserialport,chardev=c,name=a.port", "-qmp", "unix:"+socket+",server=on,wait=off", "-S")
	cmd.Dir, cmd.Stderr, cmd.SysProcAttr = here, os.Stderr, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	for wait := need.Patient(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(socket); err == nil {
			break
		} else if wait.Over() {
			t.Fatal(err)
		}
	}
	running, err := describe.Look(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := describe.Of(running); err == nil || !strings.Contains(err.Error(), "no NIC") {
		t.Errorf("without a NIC: %v", err)
	}
	running.Cards = []qemu.Card{{MAC: "52:54:00:00:01:0a"}} // taps take root: lab has them
	found, err := describe.Of(running)
	if err != nil {
		t.Fatal(err)
	}
	if looks := strings.Join(found.Look, "\n"); strings.Contains(looks, "\nplugged") || strings.Contains(looks, "\nunplugged") {
		t.Errorf("it is as it was started: %s", looks)
	}
	d := found.Description
	if d.Name != "web" || d.Memory != 64<<20 || len(d.Disks) != 4 || d.Disks[1].Path != filepath.Join(here, "root.qcow2") {
		t.Errorf("%+v", d)
	}
	qmp := filepath.Join(there, "qmp.sock")
	words := strings.NewReplacer("{qmp}", qmp, "{memory}", "64M", "{dir}", there, "{disk0}", filepath.Join(there, "disk0"),
		"{disk1}", filepath.Join(there, "disk1"), "{disk2}", filepath.Join(there, "disk2"), "{disk3}", filepath.Join(there, "disk3"))
	c := qemu.Command{Dir: there, QMP: qmp}
	for _, word := range d.Start {
		c.Words = append(c.Words, words.Replace(word))
	}
	to, err := qemu.StartCommand(t.Context(), c)
	if err != nil {
		t.Fatalf("%v: %s", err, qemu.Complaint(there))
	}
	defer to.Kill()
	from, err := qemu.AttachSocket(t.Context(), socket, 0, "")
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	way := vm.MigrateOptions{URI: "unix:" + filepath.Join(there, "way")}
	if err := to.PrepareIncoming(t.Context(), way); err != nil {
		t.Fatal(err)
	}
	if err := from.Migrate(t.Context(), way); err != nil {
		t.Fatal(err)
	}
	if p, err := to.AwaitMigration(t.Context()); err != nil || p.Status != vm.Completed {
		t.Fatalf("%v, %v: %s", p.Status, err, qemu.Complaint(there))
	}
}
