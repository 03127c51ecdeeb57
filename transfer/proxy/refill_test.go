package proxy_test

import (
	"context"
	"testing"
	"time"

	"godwit/transfer/proxy"
	"godwit/vm"
	"godwit/vm/vmtest"
)

// early moves a guest, all of whose memory changes, to where it may run before its pages
// are there.
func (p *pair) early(ctx context.Context, bandwidth int64) *link {
	p.T.Helper()
	l := p.linkFor(true, "a", "b")
	l.limit.Set(bandwidth)
	p.migrate(l)
	p.until(l, "some frames", func(s proxy.Stats) bool { return s.Stats.Acked > 4<<20 })
	if !l.src.PostCopy() {
		p.T.Fatal("post-copy is refused")
	}
	if err := p.Src.Stop(ctx); err != nil {
		p.T.Fatal(err)
	}
	go p.Src.ReleaseSwitchover(ctx) //nolint:errcheck // its end is waited for
	l.src.AllowSwitchover()
	select {
	case <-l.dst.HandedOver():
	case <-ctx.Done():
		p.T.Fatalf("not handed over: source %v, destination %v", l.src.Err(), l.dst.Err())
	}
	for {
		status, err := p.Dst.Status(ctx)
		if err != nil {
			p.T.Fatal(err)
		}
		if status == vm.Paused {
			return l
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// refill is a link to an inlet that has begun.
func (p *pair) refill() *link {
	return p.connect(proxy.DestinationConfig{Mirror: p.Dir, Inlet: p.inlet(), Resume: true}, proxy.SourceConfig{Refill: true}, "a", "b")
}

// TestRefill loses the proxies of a guest whose pages are not all there, without a word of
// one to the other, and brings the rest by a second migration of the stopped guest; that
// again is lost once.
func TestRefill(t *testing.T) {
	for name, runs := range map[string]bool{"runs at once": true, "waits for the last page": false} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, vmtest.Writer{Start: 4 << 20, Size: 24 << 20, Delay: 20_000})
			ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
			defer cancel()
			l := p.early(ctx, 3<<20)
			if runs {
				if err := p.Dst.Cont(ctx); err != nil {
					t.Fatal(err)
				}
			}
			for again := range 2 {
				left := l.dst.Absent()
				for begun := time.Now(); l.dst.Absent()+200 > left; time.Sleep(5 * time.Millisecond) {
					if time.Since(begun) > 30*time.Second || l.dst.Err() != nil {
						t.Fatalf("%d pages are missing still: source %v, destination %v", left, l.src.Err(), l.dst.Err())
					}
				}
				left = l.dst.Absent()
				for _, u := range l.uplinks {
					u.set(true)
				}
				l.dst.Close()
				l.src.Close()
				if progress, err := p.Src.AwaitMigration(ctx); err == nil {
					t.Fatalf("the source completed: %+v", progress)
				}
				p.Status(p.Src, vm.Paused)
				if left < 500 {
					t.Fatalf("only %d pages are missing when it is lost", left)
				}
				l = p.refill()
				if got := l.dst.Absent(); got == 0 || got > left {
					t.Errorf("%d pages are missing after, %d before", got, left)
				}
				l.limit.Set([]int64{3 << 20, 0}[again])
				p.migrate(l)
			}
			if _, err := p.Dst.AwaitMigration(ctx); err != nil {
				t.Fatalf("%v; source %v, destination %v; %+v", err, l.src.Err(), l.dst.Err(), l.src.Stats())
			}
			if _, err := p.Src.AwaitMigration(ctx); err != nil {
				t.Fatal(err)
			}
			<-l.src.Done()
			<-l.dst.Done()
			if l.src.Err() != nil || l.dst.Err() != nil {
				t.Errorf("source %v, destination %v", l.src.Err(), l.dst.Err())
			}
			p.Status(p.Src, vm.PostMigrate)
			if s := l.src.Stats(); runs && s.Faults == 0 {
				t.Error("no page was asked for")
			}
			if !runs {
				p.same()
				if err := p.Dst.Cont(ctx); err != nil {
					t.Fatal(err)
				}
			}
			if err := vmtest.AwaitPasses(p.Serial(p.Dst), 3, 30*time.Second); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestOutlivesQEMU kills the source's QEMU in post-copy: its proxy has every page, and brings what is missing.
func TestOutlivesQEMU(t *testing.T) {
	for name, again := range map[string]bool{"at first": false, "in a refill": true} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, vmtest.Writer{Start: 4 << 20, Size: 24 << 20, Delay: 20_000})
			ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
			defer cancel()
			l := p.early(ctx, 3<<20)
			if err := p.Dst.Cont(ctx); err != nil {
				t.Fatal(err)
			}
			if again {
				l.dst.Close()
				l.src.Close()
				p.Src.AwaitMigration(ctx) //nolint:errcheck // it has failed
				l = p.refill()
				l.limit.Set(3 << 20)
				p.migrate(l)
				p.until(l, "all was read", func(s proxy.Stats) bool { return s.Ended && s.Waiting > 500 })
				time.Sleep(300 * time.Millisecond) // and what follows
			}
			left := l.dst.Absent()
			if err := p.Src.Kill(); err != nil {
				t.Fatal(err)
			}
			if left < 500 {
				t.Fatalf("only %d pages are missing when it is killed", left)
			}
			l.uplinks[0].set(true)
			l.uplinks[1].set(true)
			time.Sleep(time.Second)
			l.uplinks[1].set(false)
			if _, err := p.Dst.AwaitMigration(ctx); err != nil {
				t.Fatalf("%v; source %v, destination %v; %+v", err, l.src.Err(), l.dst.Err(), l.src.Stats())
			}
			<-l.src.Done()
			<-l.dst.Done()
			if l.src.Err() != nil || l.dst.Err() != nil {
				t.Errorf("source %v, destination %v", l.src.Err(), l.dst.Err())
			}
			if err := vmtest.AwaitPasses(p.Serial(p.Dst), 3, 30*time.Second); err != nil {
				t.Fatal(err)
			}
		})
	}
}
