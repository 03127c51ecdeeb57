package transfer_test

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"testing"
	"time"

	"godwit/transfer"
	"godwit/transfer/pace"
	"godwit/vm"
	"godwit/vm/vmtest"
)

// writing is the guest of these tests: 24 MiB of noise, of which 4 MiB are written
// at some 10 MiB/s.
var writing = vmtest.Writer{Start: 4 << 20, Size: 24 << 20, Hot: 4 << 20, Delay: 200_000}

// pair is a guest at its source and the QEMU that waits for it.
type pair struct{ *vmtest.Pair }

func newPair(t *testing.T) *pair {
	t.Helper()
	return &pair{vmtest.NewPair(t, writing)}
}

// link is a forwarder over loopback between the two: a listener at the destination that
// serves each stream, and a Source.
type link struct {
	limit  pace.Limiter
	src    *transfer.Source
	served chan error
}

// forward joins source and destination through loopback TCP.
func (p *pair) forward(opts *vm.MigrateOptions) *link {
	p.T.Helper()
	incoming := filepath.Join(p.Dst.Dir(), "in.sock")
	in := *opts
	in.URI = "unix:" + incoming
	if err := p.Dst.PrepareIncoming(p.T.Context(), in); err != nil {
		p.T.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		p.T.Fatal(err)
	}
	l := &link{served: make(chan error, 300)}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { l.served <- transfer.ServeStream(p.T.Context(), conn, incoming, nil) }()
		}
	}()
	path := filepath.Join(p.Dir, "out.sock")
	l.src, err = transfer.ListenSource(p.T.Context(), path, l.limit.Share(), func(ctx context.Context, n int) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", listener.Addr().String())
	})
	if err != nil {
		p.T.Fatal(err)
	}
	opts.URI = "unix:" + path
	p.T.Cleanup(func() {
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
			if err := p.Src.Migrate(t.Context(), opts); err != nil {
				t.Fatal(err)
			}
			held := p.stayHeld(l, 1500*time.Millisecond)
			t.Logf("held: %+v", held)

			p.finish(l)
		})
	}
}

// heldLimit is how much longer a QEMU may take for its first round, which is slow on a busy machine.
const heldLimit = 20 * time.Second

// stayHeld checks that the migration goes on for d after it could have finished.
func (p *pair) stayHeld(l *link, d time.Duration) vm.Progress {
	p.T.Helper()
	var progress vm.Progress
	begun := time.Now()
	for time.Since(begun) < d || (progress.Rounds < 2 || !l.src.Stats().Acked) && time.Since(begun) < d+heldLimit { // it began slowly
		time.Sleep(100 * time.Millisecond)
		var err error
		if progress, err = p.Src.Progress(p.T.Context()); err != nil {
			p.T.Fatal(err)
		}
		if progress.Status != vm.Active {
			p.T.Fatalf("held migration is %s", progress.Status)
		}
	}
	if progress.Rounds < 2 {
		p.T.Fatalf("only %d rounds in %v: nothing was held", progress.Rounds, time.Since(begun))
	}
	if s := l.src.Stats(); !s.Acked || s.Allowed || s.AckPassedOn {
		p.T.Fatalf("stats while held: %+v", s)
	}
	p.Status(p.Src, vm.Running)
	p.Status(p.Dst, vm.Incoming)
	return progress
}

// finish stops the guest, if it runs, lets it go, and sees it run undamaged at the destination.
func (p *pair) finish(l *link) {
	p.T.Helper()
	t := p.T
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	begun := time.Now()
	switch was, err := p.Src.Status(ctx); { // it may have been stopped before
	case err != nil:
		t.Fatal(err)
	case was == vm.Running:
		if err := p.Src.Stop(ctx); err != nil {
			t.Fatal(err)
		}
	}
	stopped := time.Since(begun)
	if err := p.Src.ReleaseSwitchover(ctx); err != nil {
		t.Fatal(err)
	}
	before, err := vmtest.Passes(p.Serial(p.Src))
	if err != nil {
		t.Fatal(err)
	}
	l.src.AllowSwitchover()
	if _, err := p.Dst.AwaitMigration(ctx); err != nil {
		t.Fatal(err)
	}
	loaded := time.Since(begun)
	p.Status(p.Dst, vm.Paused)
	sent, err := p.Src.AwaitMigration(ctx)
	if err != nil {
		t.Fatal(err)
	}
	completed := time.Since(begun)
	p.Status(p.Src, vm.PostMigrate)
	if err := p.Dst.Cont(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("stop %v, loaded %v, source knows %v; QEMU's downtime %v; %d passes before",
		stopped, loaded, completed, sent.Downtime, before)
	if err := vmtest.AwaitPasses(p.Serial(p.Dst), 3, 20*time.Second); err != nil {
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
		"destination killed": func(p *pair, _ *link) error { return p.Dst.Kill() },
		"forwarder closed":   func(_ *pair, l *link) error { return l.src.Close() },
		"cancelled":          func(p *pair, _ *link) error { return p.Src.CancelMigration(p.T.Context()) },
	} {
		for kind, paused := range map[string]bool{"plain": true, "multifd": false} {
			t.Run(fmt.Sprintf("%s, %s, paused %v", name, kind, paused), func(t *testing.T) {
				opts := kinds[kind]
				p := newPair(t)
				p.breakIt(opts, cut, paused)

				p.Dst.Kill()
				p.Wait()
				l := p.forward(&opts)
				if err := p.Src.Migrate(t.Context(), opts); err != nil {
					t.Fatal(err)
				}
				p.finish(l)
			})
		}
	}
}

// breakIt starts a slow migration, cuts it, and checks the guest.
func (p *pair) breakIt(opts vm.MigrateOptions, cut func(*pair, *link) error, paused bool) {
	p.T.Helper()
	t := p.T
	l := p.forward(&opts)
	l.limit.Set(4 << 20)
	if err := p.Src.Migrate(t.Context(), opts); err != nil {
		t.Fatal(err)
	}
	for l.src.Stats().Forward < 1<<20 {
		time.Sleep(5 * time.Millisecond)
	}
	want := vm.Running
	if paused {
		want = vm.Paused
		if err := p.Src.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := cut(p, l); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	progress, err := p.Src.AwaitMigration(ctx)
	if err == nil {
		t.Fatalf("migration: %+v", progress)
	}
	t.Logf("source says: %v", err)
	p.Status(p.Src, want)
	if !paused {
		if err := vmtest.AwaitPasses(p.Serial(p.Src), 2, 20*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	l.src.Close()
	if p.Dst.Alive() {
		if _, err := p.Dst.AwaitMigration(ctx); err == nil {
			t.Error("destination says that it completed")
		} else {
			t.Logf("destination says: %v", err)
		}
	}
}

func TestMigrateNeedsAListener(t *testing.T) {
	p := newPair(t)
	opts := vm.MigrateOptions{URI: "unix:" + filepath.Join(p.Dir, "nobody"), HoldSwitchover: true}
	begun := time.Now()
	err := p.Src.Migrate(t.Context(), opts)
	if err == nil || time.Since(begun) > 30*time.Second {
		t.Errorf("error %v after %v", err, time.Since(begun))
	}
	t.Log(err)
	p.Status(p.Src, vm.Running)
}

func TestHoldListenerTakesQEMUsOwnConnection(t *testing.T) {
	for _, uri := range []string{"tcp:127.0.0.1:%d", "tcp:127.0.0.1:%d,mptcp=on"} {
		t.Run(uri, func(t *testing.T) {
			p := newPair(t)
			opts := vm.MigrateOptions{HoldSwitchover: true, URI: "unix:" + filepath.Join(p.Dst.Dir(), "in.sock")}
			if err := p.Dst.PrepareIncoming(t.Context(), opts); err != nil {
				t.Fatal(err)
			}
			hold, err := transfer.ListenHold(t.Context(), transfer.Hold{
				Address: "127.0.0.1:0", MPTCP: true, QEMUSocket: filepath.Join(p.Dst.Dir(), "in.sock"),
			})
			if err != nil {
				t.Fatal(err)
			}
			defer hold.Close()
			opts.URI = fmt.Sprintf(uri, hold.Addr().Port())
			if err := p.Src.Migrate(t.Context(), opts); err != nil {
				t.Fatal(err)
			}
			for begun := time.Now(); !hold.Stats().Acked; time.Sleep(10 * time.Millisecond) {
				if time.Since(begun) > heldLimit {
					t.Fatalf("the destination has not agreed: %+v", hold.Stats())
				}
			}
			time.Sleep(time.Second) // long enough to have finished, were it not held
			p.Status(p.Src, vm.Running)
			if s := hold.Stats(); s.AckPassedOn {
				t.Errorf("stats while held: %+v", s)
			}
			hold.AllowSwitchover()                  // without a stop: QEMU finishes by itself
			go p.Src.ReleaseSwitchover(t.Context()) //nolint:errcheck // its end is waited for
			if _, err := p.Dst.AwaitMigration(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := p.Src.AwaitMigration(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := p.Dst.Cont(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := vmtest.AwaitPasses(p.Serial(p.Dst), 3, 20*time.Second); err != nil {
				t.Fatal(err)
			}
			<-hold.Done()
			if err := hold.Err(); err != nil {
				t.Error(err)
			}
		})
	}
}
