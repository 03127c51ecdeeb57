package proxy_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"godwit/internal/child"
	"godwit/transfer/inlet"
	"godwit/transfer/pace"
	"godwit/transfer/paths"
	"godwit/transfer/proxy"
	"godwit/transfer/wire"
	"godwit/vm"
	"godwit/vm/qemu"
	"godwit/vm/vmtest"
)

func TestMain(m *testing.M) {
	child.Dispatch()                                                                 // inlets
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("godwit/transfer/inlet.reap")) // its process ends a little later
}

// writing is the guest of these tests: 24 MiB of noise, of which 4 MiB are written at
// some 10 MiB/s.
var writing = vmtest.Writer{Start: 4 << 20, Size: 24 << 20, Hot: 4 << 20, Delay: 200_000}

// pair is a guest at its source and the QEMU that waits for it.
type pair struct {
	*vmtest.Pair
	links  int
	beside *proxy.Beside
}

func newPair(t *testing.T, guest vmtest.Writer) *pair {
	t.Helper()
	return &pair{Pair: vmtest.NewPair(t, guest)}
}

// link is a proxy at each end, and lanes between.
type link struct {
	limit   pace.Limiter
	src     *proxy.Source
	dst     *proxy.Destination
	uplinks []*uplink
	opts    vm.MigrateOptions
	id      paths.Identity
	addr    string // where lanes are waited for
}

func (p *pair) link(names ...string) *link { return p.linkFor(false, names...) }

func (p *pair) linkFor(postcopy bool, names ...string) *link {
	p.T.Helper()
	t := p.T
	incoming := filepath.Join(p.Dst.Dir(), "in.sock")
	in := vm.MigrateOptions{HoldSwitchover: true, URI: "unix:" + incoming, Postcopy: postcopy}
	if err := p.Dst.PrepareIncoming(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	config := proxy.DestinationConfig{Socket: incoming, Mirror: p.Dir, Beside: p.beside}
	if postcopy {
		config.Inlet = p.inlet()
		if err := inlet.Start(t.Context(), config.Inlet, filepath.Join(p.Dir, "inlet.log")); err != nil {
			t.Fatal(err)
		}
	}
	return p.connect(config, proxy.SourceConfig{Postcopy: postcopy, Buffer: 32 << 20}, names...)
}

func (p *pair) inlet() string { return filepath.Join(p.Dst.Dir(), "inlet.sock") }

// connect makes the two proxies.
func (p *pair) connect(to proxy.DestinationConfig, from proxy.SourceConfig, names ...string) *link {
	p.T.Helper()
	t := p.T
	p.links++
	l := &link{opts: vm.MigrateOptions{HoldSwitchover: !from.Refill}}
	id := paths.Identity{Migration: "m-1", Key: wire.Key{byte(p.links)}}
	to.Identity = id
	var err error
	if l.dst, err = proxy.NewDestination(context.Background(), to); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.id, l.addr = id, listener.Addr().String()
	var lanes []paths.Lane
	for _, name := range names {
		u := &uplink{name: name}
		l.uplinks = append(l.uplinks, u)
		lanes = append(lanes, paths.Lane{Path: name, Open: func(ctx context.Context) (net.Conn, error) {
			return u.dial(ctx, listener.Addr().String())
		}})
	}
	serving := acceptAll(listener, func(conn net.Conn) { l.dst.Serve(context.Background(), conn) }) //nolint:errcheck // the source's end tells
	from.Identity = cmp.Or(from.Identity, id)
	from.Limit = l.limit.Share()
	from.Socket, from.Lanes, from.Spill, from.Budget = filepath.Join(p.Dir, "out.sock"), lanes, cmp.Or(from.Spill, p.Dir), 300*time.Millisecond
	if l.src, err = proxy.ListenSource(context.Background(), from); err != nil {
		t.Fatal(err)
	}
	l.opts.URI = "unix:" + from.Socket
	t.Cleanup(func() {
		l.src.Close()
		l.dst.Close()
		listener.Close()
		serving.Wait()
	})
	return l
}

// stopEarly stops the guest, whose rest is to follow it.
func (p *pair) stopEarly(ctx context.Context, l *link) {
	p.T.Helper()
	if !l.src.PostCopy() {
		p.T.Fatal("post-copy is refused")
	}
	if err := p.Src.Stop(ctx); err != nil {
		p.T.Fatal(err)
	}
	go p.Src.ReleaseSwitchover(ctx) //nolint:errcheck // its end is waited for
	l.src.AllowSwitchover()
}

// until waits for something of the Source's figures.
func (p *pair) until(l *link, what string, ok func(proxy.Stats) bool) {
	p.T.Helper()
	for begun := time.Now(); !ok(l.src.Stats()); time.Sleep(5 * time.Millisecond) {
		if err := l.src.Err(); err != nil || time.Since(begun) > 30*time.Second {
			p.T.Fatalf("%s: %v after %v, %+v", what, err, time.Since(begun), l.src.Stats())
		}
	}
}

// finish stops the guest, lets it go, compares every page, and sees it run on.
func (p *pair) finish(l *link) {
	p.T.Helper()
	t := p.T
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	before := l.src.Stats()
	begun := time.Now()
	l.src.Hurry()
	if err := p.Src.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	go p.Src.ReleaseSwitchover(ctx) //nolint:errcheck // its end is waited for
	stopped := time.Since(begun)
	l.src.AllowSwitchover()
	if _, err := p.Dst.AwaitMigration(ctx); err != nil {
		t.Fatalf("%v; source %v, destination %v; %+v", err, l.src.Err(), l.dst.Err(), l.src.Stats())
	}
	loaded := time.Since(begun)
	if _, err := p.Src.AwaitMigration(ctx); err != nil {
		t.Fatal(err)
	}
	p.Status(p.Src, vm.PostMigrate)
	p.Status(p.Dst, vm.Paused)
	p.same()
	if err := p.Dst.Cont(ctx); err != nil {
		t.Fatal(err)
	}
	if err := vmtest.AwaitPasses(p.Serial(p.Dst), 3, 20*time.Second); err != nil {
		t.Fatal(err)
	}
	for what, end := range map[string]interface {
		Done() <-chan struct{}
		Err() error
	}{"source": l.src, "destination": l.dst} {
		select {
		case <-end.Done():
		case <-ctx.Done():
			t.Fatalf("%s is still open: %+v", what, l.src.Stats())
		}
		if err := end.Err(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	t.Logf("stop %v, loaded %v; queue before %d, rounds %d", stopped, loaded, before.Queue, before.Round)
	s := l.src.Stats()
	t.Logf("read %d, sent %d, tail %d, codings %+v, levels %v", s.Read, s.Stats.Acked, s.Tail, s.Codings, s.Levels)
	t.Logf("paths %+v, superseded %d, unchanged %d, missed %d", s.Paths, s.Superseded, s.Unchanged, s.Missed)
}

// same compares the paused guests' memory page by page.
func (p *pair) same() {
	p.T.Helper()
	dump := func(m *qemu.Process, name string) []byte {
		path := filepath.Join(p.Dir, name)
		args := map[string]any{"val": 0, "size": vmtest.Memory, "filename": path}
		if err := m.QMP().Do(p.T.Context(), "pmemsave", args, nil); err != nil {
			p.T.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil || len(data) != vmtest.Memory {
			p.T.Fatalf("%d bytes, %v", len(data), err)
		}
		return data
	}
	a, b := dump(p.Src, "a"), dump(p.Dst, "b")
	for at := 0; at < vmtest.Memory; at += 4096 {
		if !bytes.Equal(a[at:at+4096], b[at:at+4096]) {
			p.T.Fatalf("page at %#x differs", at)
		}
	}
	p.sameSums()
}

// sameSums compares every block by the sums that labs use, and sees that they find a page
// that differs by one byte.
func (p *pair) sameSums() {
	p.T.Helper()
	sums := func(m *qemu.Process) (qemu.Sums, *qemu.Memory) {
		at, err := m.Memory(p.T.Context())
		if err != nil {
			p.T.Fatal(err)
		}
		s, err := at.Sums(p.T.Context(), false)
		if err != nil {
			p.T.Fatal(err)
		}
		return s, at
	}
	a, _ := sums(p.Src)
	b, at := sums(p.Dst)
	if d := b.Compare(a); d.Count != 0 || d.Pages < vmtest.Memory/qemu.PageSize {
		p.T.Fatalf("compared: %+v", d)
	}
	const page = 5000
	if err := vmtest.Damage(at, "pc.ram", page); err != nil {
		p.T.Fatal(err)
	}
	b, _ = sums(p.Dst)
	if d := b.Compare(a); d.Count != 1 || d.Differ[0] != fmt.Sprintf("pc.ram+%#x", page*qemu.PageSize) {
		p.T.Fatalf("compared after damage: %+v", d)
	}
	for range 255 { // and back to what it was
		if err := vmtest.Damage(at, "pc.ram", page); err != nil {
			p.T.Fatal(err)
		}
	}
}

func (p *pair) migrate(l *link) {
	p.T.Helper()
	if err := p.Src.Migrate(p.T.Context(), l.opts); err != nil {
		p.T.Fatalf("%v; %v", err, l.src.Err())
	}
}

// TestGuestArrivesWhole moves a guest that writes, over two lanes of which one is cut in
// the middle, and compares every page.
func TestGuestArrivesWhole(t *testing.T) {
	p := newPair(t, writing)
	l := p.link("a", "b")
	l.limit.Set(12 << 20)
	p.migrate(l)
	p.until(l, "both lanes carry", func(s proxy.Stats) bool {
		return len(s.Paths) == 2 && s.Paths[0].Acked > 1<<20 && s.Paths[1].Acked > 1<<20
	})
	l.uplinks[0].set(true)
	p.until(l, "rounds", func(s proxy.Stats) bool { return s.Round >= 4 })
	if s := l.src.Stats(); s.Paths[0].Died == 0 || s.Ended {
		t.Errorf("nothing was cut, or it was not held: %+v", s)
	}
	p.Status(p.Src, vm.Running)
	p.Status(p.Dst, vm.Incoming)
	p.finish(l)
}

// TestBusyGuestArrivesWhole stops the guest in the first round, while all of it changes.
func TestBusyGuestArrivesWhole(t *testing.T) {
	p := newPair(t, vmtest.Writer{Start: 4 << 20, Size: 24 << 20, Delay: 20_000})
	l := p.link("a", "b")
	l.limit.Set(20 << 20)
	p.migrate(l)
	p.until(l, "some frames", func(s proxy.Stats) bool { return s.Stats.Acked > 8<<20 })
	p.finish(l)
}

// TestAllLanesCut has no lane for 3 s, in the copy and again in the stop phase.
func TestAllLanesCut(t *testing.T) {
	p := newPair(t, writing)
	l := p.link("a", "b")
	l.limit.Set(8 << 20)
	p.migrate(l)
	cut := func(d time.Duration) {
		for _, u := range l.uplinks {
			u.set(true)
		}
		time.Sleep(d)
		for _, u := range l.uplinks {
			u.set(false)
		}
	}
	p.until(l, "some frames", func(s proxy.Stats) bool { return s.Stats.Acked > 2<<20 })
	cut(3 * time.Second)
	p.until(l, "some more", func(s proxy.Stats) bool { return s.Stats.Acked > 6<<20 })
	go func() {
		time.Sleep(20 * time.Millisecond)
		cut(500 * time.Millisecond)
	}()
	p.finish(l)
}

// TestBrokenMigrationCanBeRepeated breaks a migration and migrates the same guest again.
func TestBrokenMigrationCanBeRepeated(t *testing.T) {
	for name, cut := range map[string]func(p *pair, l *link) error{
		"destination's QEMU killed": func(p *pair, _ *link) error { return p.Dst.Kill() },
		"source closed":             func(_ *pair, l *link) error { return l.src.Close() },
		"destination closed":        func(_ *pair, l *link) error { l.dst.Close(); return nil },
		"cancelled":                 func(p *pair, _ *link) error { return p.Src.CancelMigration(p.T.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, writing)
			l := p.link("a", "b")
			l.limit.Set(4 << 20)
			p.migrate(l)
			p.until(l, "some frames", func(s proxy.Stats) bool { return s.Stats.Acked > 1<<20 })
			if err := cut(p, l); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			if progress, err := p.Src.AwaitMigration(ctx); err == nil {
				t.Fatalf("migration: %+v", progress)
			}
			for what, done := range map[string]<-chan struct{}{"source": l.src.Done(), "destination": l.dst.Done()} {
				select {
				case <-done:
				case <-ctx.Done():
					t.Fatalf("%s is still open", what)
				}
			}
			t.Logf("source: %v; destination: %v", l.src.Err(), l.dst.Err())
			if l.src.Err() == nil || l.dst.Err() == nil {
				t.Error("no error")
			}
			p.Status(p.Src, vm.Running)
			p.Dst.Kill()
			p.Wait()
			l = p.link("a", "b")
			p.migrate(l)
			p.until(l, "a round", func(s proxy.Stats) bool { return s.Round >= 2 })
			p.finish(l)
		})
	}
}

func TestForeignFileIsKept(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	if err := os.WriteFile(socket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := proxy.ListenSource(t.Context(), proxy.SourceConfig{Socket: socket})
	if err == nil || !strings.Contains(err.Error(), "other than a socket") {
		t.Errorf("%v", err)
	}
}
