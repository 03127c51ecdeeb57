package transfer_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"godwit/internal/need"
	"godwit/transfer"
	"godwit/vm"
	"godwit/vm/qemu"
	"godwit/vm/vmtest"
)

// pair is a guest at its source and the QEMU that waits for it.
type pair struct {
	t        *testing.T
	dir      string
	src, dst *qemu.Process
	n        int
}

// writing is the guest of these tests: 24 MiB of noise, of which 4 MiB are written
// at some 10 MiB/s.
var writing = vmtest.Writer{Start: 4 << 20, Size: 24 << 20, Hot: 4 << 20, Delay: 200_000}

func newPair(t *testing.T) *pair {
	t.Helper()
	need.QEMU(t)
	p := &pair{t: t, dir: shortDir(t)}
	image := filepath.Join(p.dir, "writer")
	if err := os.WriteFile(image, writing.Image(), 0o600); err != nil {
		t.Fatal(err)
	}
	p.src = p.start(qemu.Spec{Dir: filepath.Join(p.dir, "src"), Kernel: image})
	if err := vmtest.AwaitPasses(p.serial(p.src), 1, 30*time.Second); err != nil {
		t.Fatal(err)
	}
	p.wait()
	return p
}

func (p *pair) start(spec qemu.Spec) *qemu.Process {
	p.t.Helper()
	spec.Name, spec.Memory, spec.Accel = "t-writer", 64<<20, "tcg"
	m, err := qemu.Start(p.t.Context(), spec)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { m.Kill() })
	return m
}

// wait starts a new destination.
func (p *pair) wait() {
	p.n++
	p.dst = p.start(qemu.Spec{
		Dir: filepath.Join(p.dir, fmt.Sprintf("dst%d", p.n)), Kernel: filepath.Join(p.dir, "writer"), Incoming: true,
	})
}

func (p *pair) serial(m *qemu.Process) string { return filepath.Join(m.Dir(), "serial.log") }

func (p *pair) status(m *qemu.Process, want vm.Status) {
	p.t.Helper()
	got, err := m.Status(p.t.Context())
	if err != nil || got != want {
		p.t.Fatalf("status %s, %v; want %s", got, err, want)
	}
}

// link is a forwarder over loopback between the two: a listener at the destination that
// serves each stream, and a Source.
type link struct {
	src    *transfer.Source
	served chan error
}

// forward joins source and destination through loopback TCP.
func (p *pair) forward(opts *vm.MigrateOptions) *link {
	p.t.Helper()
	incoming := filepath.Join(p.dst.Dir(), "in.sock")
	in := *opts
	in.URI = "unix:" + incoming
	if err := p.dst.PrepareIncoming(p.t.Context(), in); err != nil {
		p.t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		p.t.Fatal(err)
	}
	l := &link{served: make(chan error, 300)}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { l.served <- transfer.ServeStream(p.t.Context(), conn, incoming, nil) }()
		}
	}()
	path := filepath.Join(p.dir, "out.sock")
	l.src, err = transfer.ListenSource(p.t.Context(), path, func(ctx context.Context, n int) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", listener.Addr().String())
	})
	if err != nil {
		p.t.Fatal(err)
	}
	opts.URI = "unix:" + path
	p.t.Cleanup(func() {
		l.src.Close()
		listener.Close()
	})
	return l
}

var kinds = map[string]vm.MigrateOptions{
	"plain":   {HoldSwitchover: true},
	"xbzrle":  {HoldSwitchover: true, Xbzrle: true},
	"multifd": {HoldSwitchover: true, Multifd: true, Channels: 4, Compression: "zstd"},
}

func TestMigrationIsHeldUntilAllowed(t *testing.T) {
	for name, opts := range kinds {
		t.Run(name, func(t *testing.T) {
			p := newPair(t)
			l := p.forward(&opts)
			if err := p.src.Migrate(t.Context(), opts); err != nil {
				t.Fatal(err)
			}
			held := p.stayHeld(l, 1500*time.Millisecond)
			t.Logf("held: %+v", held)

			p.finish(l)
		})
	}
}

// stayHeld checks that the migration goes on for d after it could have finished.
func (p *pair) stayHeld(l *link, d time.Duration) vm.Progress {
	p.t.Helper()
	var progress vm.Progress
	for until := time.Now().Add(d); time.Now().Before(until); time.Sleep(100 * time.Millisecond) {
		var err error
		if progress, err = p.src.Progress(p.t.Context()); err != nil {
			p.t.Fatal(err)
		}
		if progress.Status != vm.Active {
			p.t.Fatalf("held migration is %s", progress.Status)
		}
	}
	if progress.Rounds < 2 {
		p.t.Fatalf("only %d rounds in %v: nothing was held", progress.Rounds, d)
	}
	if s := l.src.Stats(); !s.Acked || s.Allowed || s.AckPassedOn {
		p.t.Fatalf("stats while held: %+v", s)
	}
	p.status(p.src, vm.Running)
	p.status(p.dst, vm.Incoming)
	return progress
}

// finish stops the guest, lets it go, and sees it run undamaged at the destination.
func (p *pair) finish(l *link) {
	p.t.Helper()
	t := p.t
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	begun := time.Now()
	if err := p.src.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	stopped := time.Since(begun)
	before, err := vmtest.Passes(p.serial(p.src))
	if err != nil {
		t.Fatal(err)
	}
	l.src.AllowSwitchover()
	if _, err := p.dst.AwaitMigration(ctx); err != nil {
		t.Fatal(err)
	}
	loaded := time.Since(begun)
	p.status(p.dst, vm.Paused)
	sent, err := p.src.AwaitMigration(ctx)
	if err != nil {
		t.Fatal(err)
	}
	completed := time.Since(begun)
	p.status(p.src, vm.PostMigrate)
	if err := p.dst.Cont(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("stop %v, loaded %v, source knows %v; QEMU's downtime %v; %d passes before",
		stopped, loaded, completed, sent.Downtime, before)
	if err := vmtest.AwaitPasses(p.serial(p.dst), 3, 20*time.Second); err != nil {
		t.Fatal(err)
	}
	select {
	case <-l.src.Done():
	case <-ctx.Done():
		t.Fatal("forwarder still open after the migration")
	}
	if err := l.src.Err(); err != nil {
		t.Errorf("forwarder: %v", err)
	}
	stats := l.src.Stats()
	t.Logf("forwarder: %+v", stats)
	for range stats.Streams {
		if err := <-l.served; err != nil {
			t.Errorf("destination's forwarder: %v", err)
		}
	}
}

// TestBrokenMigrationCanBeRepeated breaks a migration in every way, with the guest running
// and with the guest paused by us, and migrates the same guest afterwards.
func TestBrokenMigrationCanBeRepeated(t *testing.T) {
	for name, cut := range map[string]func(p *pair, l *link) error{
		"destination killed": func(p *pair, _ *link) error { return p.dst.Kill() },
		"forwarder closed":   func(_ *pair, l *link) error { return l.src.Close() },
		"cancelled":          func(p *pair, _ *link) error { return p.src.CancelMigration(p.t.Context()) },
	} {
		for kind, paused := range map[string]bool{"plain": true, "multifd": false} {
			t.Run(fmt.Sprintf("%s, %s, paused %v", name, kind, paused), func(t *testing.T) {
				opts := kinds[kind]
				p := newPair(t)
				p.breakIt(opts, cut, paused)

				p.dst.Kill()
				p.wait()
				l := p.forward(&opts)
				if err := p.src.Migrate(t.Context(), opts); err != nil {
					t.Fatal(err)
				}
				p.finish(l)
			})
		}
	}
}

// breakIt starts a slow migration, cuts it, and checks the guest.
func (p *pair) breakIt(opts vm.MigrateOptions, cut func(*pair, *link) error, paused bool) {
	p.t.Helper()
	t := p.t
	l := p.forward(&opts)
	l.src.SetBandwidth(4 << 20)
	if err := p.src.Migrate(t.Context(), opts); err != nil {
		t.Fatal(err)
	}
	for l.src.Stats().Forward < 1<<20 {
		time.Sleep(5 * time.Millisecond)
	}
	want := vm.Running
	if paused {
		want = vm.Paused
		if err := p.src.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := cut(p, l); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	progress, err := p.src.AwaitMigration(ctx)
	if err == nil {
		t.Fatalf("migration: %+v", progress)
	}
	t.Logf("source says: %v", err)
	p.status(p.src, want)
	if !paused {
		if err := vmtest.AwaitPasses(p.serial(p.src), 2, 20*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	l.src.Close()
	if p.dst.Alive() {
		if _, err := p.dst.AwaitMigration(ctx); err == nil {
			t.Error("destination says that it completed")
		} else {
			t.Logf("destination says: %v", err)
		}
	}
}

func TestMigrateNeedsAListener(t *testing.T) {
	p := newPair(t)
	opts := vm.MigrateOptions{URI: "unix:" + filepath.Join(p.dir, "nobody"), HoldSwitchover: true}
	begun := time.Now()
	err := p.src.Migrate(t.Context(), opts)
	if err == nil || time.Since(begun) > 5*time.Second {
		t.Errorf("error %v after %v", err, time.Since(begun))
	}
	t.Log(err)
	p.status(p.src, vm.Running)
}

func TestHoldListenerTakesQEMUsOwnConnection(t *testing.T) {
	for _, uri := range []string{"tcp:127.0.0.1:%d", "tcp:127.0.0.1:%d,mptcp=on"} {
		t.Run(uri, func(t *testing.T) {
			p := newPair(t)
			opts := vm.MigrateOptions{HoldSwitchover: true, URI: "unix:" + filepath.Join(p.dst.Dir(), "in.sock")}
			if err := p.dst.PrepareIncoming(t.Context(), opts); err != nil {
				t.Fatal(err)
			}
			hold, err := transfer.ListenHold(t.Context(), transfer.Hold{
				Address: "127.0.0.1:0", MPTCP: true, QEMUSocket: filepath.Join(p.dst.Dir(), "in.sock"),
				Admit: func(from netip.AddrPort) bool { return from.Addr().IsLoopback() },
			})
			if err != nil {
				t.Fatal(err)
			}
			defer hold.Close()
			opts.URI = fmt.Sprintf(uri, hold.Addr().Port())
			if err := p.src.Migrate(t.Context(), opts); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second) // long enough to have finished, were it not held
			p.status(p.src, vm.Running)
			if s := hold.Stats(); !s.Acked || s.AckPassedOn {
				t.Errorf("stats while held: %+v", s)
			}
			hold.AllowSwitchover() // without a stop: QEMU finishes by itself
			if _, err := p.dst.AwaitMigration(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := p.src.AwaitMigration(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := p.dst.Cont(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := vmtest.AwaitPasses(p.serial(p.dst), 3, 20*time.Second); err != nil {
				t.Fatal(err)
			}
			<-hold.Done()
			if err := hold.Err(); err != nil {
				t.Error(err)
			}
		})
	}
}

// shortDir is a directory with a name short enough for sockets in it.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "t-godwit-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
