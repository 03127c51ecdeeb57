package qemu_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"godwit/vm"
	"godwit/vm/qemu"
	"godwit/vm/vmtest"
)

// busy is a guest that passes over 4 MiB of memory as fast as it can.
func busy(t *testing.T) *qemu.Process {
	t.Helper()
	return writes(t, vmtest.Writer{Start: 4 << 20, Size: 8 << 20, Hot: 4 << 20}, 40)
}

// writes is a guest that writes, once it has made so many passes.
func writes(t *testing.T, w vmtest.Writer, passes int) *qemu.Process {
	t.Helper()
	spec := firmware(t)
	spec.Kernel = filepath.Join(t.TempDir(), "writer")
	if err := os.WriteFile(spec.Kernel, w.Image(), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, spec)
	if err := vmtest.AwaitPasses(filepath.Join(p.Dir(), "serial.log"), passes, 20*time.Second); err != nil {
		t.Fatal(err)
	}
	return p
}

// sends lets p send its memory to a reader of this test's; end breaks that off.
func sends(t *testing.T, p *qemu.Process) (end func()) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "out")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conns := make(chan net.Conn, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			close(conns)
			return
		}
		conns <- conn
		for buf := make([]byte, 1<<16); err == nil; {
			_, err = conn.Read(buf)
		}
	}()
	if err := p.Migrate(t.Context(), vm.MigrateOptions{URI: "unix:" + socket, HoldSwitchover: true, Throttles: true}); err != nil {
		t.Fatal(err)
	}
	conn := <-conns
	t.Cleanup(func() { conn.Close() })
	return func() { conn.Close() }
}

// throttled waits until QEMU says that its guest is throttled to percent.
func throttled(t *testing.T, p *qemu.Process, percent int) {
	t.Helper()
	for begun := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		progress, err := p.Progress(t.Context())
		switch {
		case err != nil:
			t.Fatal(err)
		case progress.Throttled == percent:
			return
		case time.Since(begun) > 30*time.Second:
			t.Fatalf("throttled to %d %%, want %d %%: %+v", progress.Throttled, percent, progress)
		}
	}
}

// speed is how many passes a second the guest makes, looked at for some time: a throttled one
// pauses for up to a third of a second.
func speed(t *testing.T, p *qemu.Process, long time.Duration) float64 {
	t.Helper()
	log := filepath.Join(p.Dir(), "serial.log")
	count := func() int {
		n, err := vmtest.Passes(log)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	begun, before := time.Now(), count()
	time.Sleep(long)
	return float64(count()-before) / time.Since(begun).Seconds()
}

// fastAgain fails unless the guest comes to run five times as fast as it was throttled to; a
// busy machine may need some tries.
func fastAgain(t *testing.T, p *qemu.Process, slow float64) {
	t.Helper()
	var seen float64
	for range 20 {
		if seen = max(seen, speed(t, p, time.Second)); seen > 5*slow {
			return
		}
	}
	t.Errorf("throttled it made %.0f passes/s, and after that still not more than %.0f", slow, seen)
}

// TestThrottle: a guest is throttled as far as is asked for, more or less, and never for
// longer than its migration.
func TestThrottle(t *testing.T) {
	p := busy(t)
	slow := func() float64 { // the guest at its slowest
		if err := p.Throttle(t.Context(), 97); err != nil {
			t.Fatal(err)
		}
		throttled(t, p, 97)
		return max(speed(t, p, 1500*time.Millisecond), 1)
	}
	t.Run("its reader is gone", func(t *testing.T) {
		end := sends(t, p)
		was := slow()
		end()
		fastAgain(t, p, was)
	})
	t.Run("it is cancelled by another agent", func(t *testing.T) {
		sends(t, p)
		was := slow()
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		again, err := qemu.Attach(t.Context(), p.Dir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { again.Kill() })
		p = again
		if progress, err := p.Progress(t.Context()); err != nil || progress.Throttled != 97 {
			t.Errorf("found again: %+v, %v; want one that is throttled", progress, err)
		}
		if err := p.CancelMigration(t.Context()); err != nil {
			t.Fatal(err)
		}
		fastAgain(t, p, was)
	})
	if err := p.Throttle(t.Context(), 100); err == nil {
		t.Error("throttled to 100 %")
	}
}

// TestThrottleNeedsLeave: a migration that was begun without the capability has no throttle.
func TestThrottleNeedsLeave(t *testing.T) {
	p := start(t, firmware(t))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := p.Throttle(ctx, 50); err == nil {
		t.Error("throttled a guest that is not sent")
	}
}
