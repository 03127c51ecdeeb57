package qemu_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"go.uber.org/goleak"

	"godwit/internal/need"
	"godwit/vm"
	"godwit/vm/qemu"
	"godwit/vm/qemu/qmp"
	"godwit/vm/vmtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// firmware is a guest without a kernel: it runs in its firmware for ever.
func firmware(t *testing.T) qemu.Spec {
	t.Helper()
	need.QEMU(t)
	return qemu.Spec{Name: "t-bios", Memory: 32 << 20, Dir: filepath.Join(t.TempDir(), "vm"), Accel: "tcg"}
}

func start(t *testing.T, spec qemu.Spec) *qemu.Process {
	t.Helper()
	p, err := qemu.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	vmtest.Guard(t, p.PID())
	t.Cleanup(func() {
		if err := p.Kill(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
	})
	return p
}

func status(t *testing.T, p *qemu.Process, want vm.Status) {
	t.Helper()
	got, err := p.Status(t.Context())
	if err != nil || got != want {
		t.Fatalf("status %s, %v; want %s", got, err, want)
	}
}

func TestStopContQuit(t *testing.T) {
	p := start(t, firmware(t))
	status(t, p, vm.Running)
	events := p.Events(t.Context())
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e := next(t, events); e.Name != "STOP" {
		t.Errorf("event %s, want STOP", e.Name)
	}
	status(t, p, vm.Paused)
	if err := p.Cont(t.Context()); err != nil {
		t.Fatal(err)
	}
	status(t, p, vm.Running)
	if err := p.Announce(t.Context()); err != nil {
		t.Error(err)
	}

	if err := p.Quit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := p.Exit(); got.Reason != "host-qmp-quit" || !strings.HasPrefix(got.Detail, "exit status 0") {
		t.Errorf("exit %+v, want host-qmp-quit and status 0", got)
	}
	left, err := filepath.Glob(filepath.Join(p.Dir(), "*"))
	if err != nil {
		t.Fatal(err)
	}
	for i, path := range left {
		left[i] = filepath.Base(path)
	}
	if want := []string{"qemu.log", "serial.log"}; !slices.Equal(left, want) {
		t.Errorf("left behind: %v, want %v", left, want)
	}
	if _, err := p.Status(t.Context()); err == nil {
		t.Error("a process that is gone still answers")
	}
}

func next(t *testing.T, events <-chan vm.Event) vm.Event {
	t.Helper()
	select {
	case e := <-events:
		return e
	case <-time.After(10 * time.Second):
		t.Fatal("no event for 10s")
		panic("unreachable")
	}
}

func TestFactsSayWhatWasStarted(t *testing.T) {
	spec := firmware(t)
	spec.VCPUs = 2
	disk := filepath.Join(t.TempDir(), "disk,1.raw")
	if err := os.WriteFile(disk, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	spec.Disks = []vm.Disk{{ID: "root", Path: disk, Format: "raw"}}
	spec.NICs = taps(t, "a", "b")
	f, err := start(t, spec).Facts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(f.Machine, "pc-q35-") || f.CPU != "max" || f.Accel != "tcg" ||
		f.Name != "t-bios" || f.VCPUs != 2 || f.Memory != 32<<20 || len(f.Blockers) != 0 || !f.Quiet {
		t.Errorf("facts: %+v", f)
	}
	if cpu := qemu.CPU(f); cpu != "max,-erms,-fsrm" {
		t.Errorf("another QEMU shows its processor by -cpu %s: %v", cpu, f.Features)
	}
	want := vm.Disk{ID: "root", Path: disk, Format: "raw", Size: 1 << 20}
	if len(f.Disks) != 1 || f.Disks[0] != want {
		t.Errorf("disks %+v, want %+v", f.Disks, want)
	}
	host, err := qemu.ThisHost(t.Context())
	if err != nil || host.Version.String() != f.Version {
		t.Errorf("host %+v, %v; QEMU says %s", host, err, f.Version)
	}
}

// TestFactsSayWhoAnnounces: a destination must give a guest the NICs that it had.
func TestFactsSayWhoAnnounces(t *testing.T) {
	spec := firmware(t)
	spec.NICs, spec.Announces = taps(t, "a", "b"), true
	f, err := start(t, spec).Facts(t.Context())
	if err != nil || f.Quiet {
		t.Errorf("quiet: %v, %v", f.Quiet, err)
	}
}

// TestRootIsNoDisk: what the guest boots from is the same file at both hosts, which two
// QEMUs have open at a time, and nothing that has to move.
func TestRootIsNoDisk(t *testing.T) {
	spec := firmware(t)
	spec.Root = filepath.Join(t.TempDir(), "root.squashfs")
	if err := os.WriteFile(spec.Root, make([]byte, 1<<20), 0o400); err != nil {
		t.Fatal(err)
	}
	disk := filepath.Join(t.TempDir(), "disk.raw")
	if err := os.WriteFile(disk, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	spec.Port = "org.qemu.guest_agent.0"
	for _, dir := range []string{"source", "destination"} {
		at := spec
		at.Dir = filepath.Join(t.TempDir(), dir)
		at.Incoming = dir == "destination"
		if !at.Incoming {
			at.Disks = []vm.Disk{{ID: "data", Path: disk, Format: "raw"}}
		}
		p := start(t, at)
		f, err := p.Facts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(f.Disks) != len(at.Disks) || len(f.Disks) == 1 && f.Disks[0].ID != "data" {
			t.Errorf("%s: disks %+v", dir, f.Disks)
		}
		if len(f.Blockers) != 0 {
			t.Errorf("%s: cannot migrate: %v", dir, f.Blockers)
		}
	}
}

// taps makes taps in a namespace without a name, which goes with the test's thread.
func taps(t *testing.T, ids ...string) []qemu.NIC {
	t.Helper()
	var nics []qemu.NIC
	runtime.LockOSThread()
	home, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer home.Close()
	fresh, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	defer fresh.Close()
	for i, id := range ids {
		link := &netlink.Tuntap{
			LinkAttrs: netlink.LinkAttrs{Name: "t" + id}, Mode: netlink.TUNTAP_MODE_TAP, NonPersist: true,
			Flags: netlink.TUNTAP_ONE_QUEUE | netlink.TUNTAP_VNET_HDR | netlink.TUNTAP_NO_PI, Queues: 1,
		}
		if err := netlink.LinkAdd(link); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { link.Fds[0].Close() })
		nics = append(nics, qemu.NIC{ID: id, MAC: "52:54:00:00:01:0" + string(rune('a'+i)), Tap: link.Fds[0]})
	}
	if err := netns.Set(home); err != nil {
		t.Fatal(err) // the thread stays locked, and ends
	}
	runtime.UnlockOSThread()
	return nics
}

func TestAttachFindsItAgain(t *testing.T) {
	p := start(t, firmware(t))
	if _, err := qemu.Attach(short(t), p.Dir()); err == nil {
		t.Fatal("attached while another client has the socket")
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := qemu.Attach(t.Context(), p.Dir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { again.Kill() })
	if again.PID() != p.PID() || again.GuestChannel() != p.GuestChannel() {
		t.Errorf("attached to %d %s, started %d %s", again.PID(), again.GuestChannel(), p.PID(), p.GuestChannel())
	}
	status(t, again, vm.Running)

	if err := syscall.Kill(again.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-again.Done()
	if got := again.Exit(); got.Reason != "" {
		t.Errorf("a killed process gave the reason %q", got.Reason)
	}
	again.Close()
	if _, err := qemu.Attach(t.Context(), p.Dir()); !errors.Is(err, qemu.ErrGone) {
		t.Errorf("attach after the end: %v, want ErrGone", err)
	}
}

// A QEMU that has just begun has no pid file yet, and no socket: it is not taken for gone.
func TestAttachWaitsForItToBegin(t *testing.T) {
	p := start(t, firmware(t))
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(p.Dir(), "qmp.sock")
	if err := errors.Join(os.Remove(filepath.Join(p.Dir(), "pid")), os.Rename(socket, socket+".later")); err != nil {
		t.Fatal(err)
	}
	if _, err := qemu.Attach(short(t), p.Dir()); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, qemu.ErrGone) || errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a socket: %v, want that it does not listen", err)
	}
	begun := time.AfterFunc(100*time.Millisecond, func() { os.Rename(socket+".later", socket) }) //nolint:errcheck // Attach fails then
	defer begun.Stop()
	again, err := qemu.Attach(t.Context(), p.Dir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { again.Kill() })
	if again.PID() != p.PID() {
		t.Errorf("attached to %d, started %d", again.PID(), p.PID())
	}
}

func short(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func TestAttachSocketOfSomebodyElse(t *testing.T) {
	p := theirs(t, "-m", "16")
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

func TestStartFailsCleanly(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*qemu.Spec)
		want  string
	}{
		"machine": {func(s *qemu.Spec) { s.Machine = "pc-q35-0.1" }, "unsupported machine type"},
		"kernel":  {func(s *qemu.Spec) { s.Kernel = "/nowhere/vmlinuz" }, "/nowhere/vmlinuz"},
		"disk":    {func(s *qemu.Spec) { s.Disks = []vm.Disk{{ID: "d", Path: "/nowhere", Format: "raw"}} }, "No such file"},
		"memory":  {func(s *qemu.Spec) { s.Memory = 12345 }, "memory 12345"},
		"name":    {func(s *qemu.Spec) { s.Name = "a,b" }, `name "a,b"`},
		"format":  {func(s *qemu.Spec) { s.Disks = []vm.Disk{{ID: "d", Format: "vmdk"}} }, `"vmdk"`},
		"tap":     {func(s *qemu.Spec) { s.NICs = []qemu.NIC{{ID: "a", MAC: "52:54:00:00:00:01"}} }, "no tap"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := firmware(t)
			c.spoil(&spec)
			_, err := qemu.Start(t.Context(), spec)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v, want one line with %q", err, c.want)
			}
			if _, err := os.Stat(spec.Dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("directory is left: %v", err)
			}
		})
	}
	t.Run("cancelled", func(t *testing.T) {
		spec := firmware(t)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		if _, err := qemu.Start(ctx, spec); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want the context's", err)
		}
	})
	t.Run("dir in use", func(t *testing.T) {
		spec := firmware(t)
		p := start(t, spec)
		if _, err := qemu.Start(t.Context(), spec); err == nil || !strings.Contains(err.Error(), "runs in it already") {
			t.Errorf("second start: %v", err)
		}
		status(t, p, vm.Running)
	})
}

func TestResetEndsTheProcess(t *testing.T) {
	p := start(t, firmware(t))
	events := p.Events(t.Context())
	if err := p.QMP().Do(t.Context(), "system_reset", nil, nil); err != nil {
		t.Fatal(err)
	}
	for e := range events {
		if e.Name == "SHUTDOWN" && e.Reason() == "" {
			t.Error("SHUTDOWN without a reason")
		}
	}
	<-p.Done()
	if got := p.Exit().Reason; got != "host-qmp-system-reset" {
		t.Errorf("reason %q", got)
	}
}

// TestStopBesideAnother: whoever pauses a guest by another monitor, it is not us who stopped it.
func TestStopBesideAnother(t *testing.T) {
	p := start(t, firmware(t))
	other, err := new(net.Dialer).DialContext(t.Context(), "unix", filepath.Join(p.Dir(), "look.sock"))
	if err != nil {
		t.Fatal(err)
	}
	second, err := qmp.New(t.Context(), other)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if err := second.Do(t.Context(), "stop", nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(t.Context()); !errors.As(err, new(vm.StoodError)) {
		t.Errorf("paused by somebody else: %v", err)
	}
	status(t, p, vm.Paused)
	if err := second.Do(t.Context(), "cont", nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Errorf("it ran on: %v", err)
	}
}

func TestWriterRuns(t *testing.T) {
	writes(t, vmtest.Writer{Start: 4 << 20, Size: 16 << 20, Hot: 1 << 20}, 10)
}

// TestDirtyRate: a guest that passes over 4 MiB again and again rewrites 4 MiB in a
// second, however often; a paused one nothing.
func TestDirtyRate(t *testing.T) {
	p := writes(t, vmtest.Writer{Start: 4 << 20, Size: 16 << 20, Hot: 4 << 20}, 40)
	rate, err := p.DirtyRate(t.Context(), time.Second)
	if err != nil || rate < 2<<20 || rate > 6<<20 {
		t.Errorf("writes %d bytes/s, %v; 4 MiB are written again and again", rate, err)
	}
	// In a part of a second as much is written, so that the rate is higher, as far as QEMU can tell.
	rate, err = p.DirtyRate(t.Context(), 250*time.Millisecond)
	if err != nil || rate < 2<<20 || rate > 24<<20 {
		t.Errorf("writes %d bytes/s in a quarter of a second, %v", rate, err)
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if rate, err := p.DirtyRate(t.Context(), time.Second); err != nil || rate != 0 {
		t.Errorf("paused, it writes %d bytes/s, %v", rate, err)
	}
}
