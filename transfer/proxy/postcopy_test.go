package proxy_test

import (
	"context"
	"testing"
	"time"

	"godwit/transfer/proxy"
	"godwit/vm"
	"godwit/vm/vmtest"
)

// TestPostcopy lets a guest, all of whose memory changes faster than the lanes carry, run
// at the destination before its pages are there, while one lane is cut, and for a second both.
func TestPostcopy(t *testing.T) {
	for name, early := range map[string]bool{"runs at once": true, "waits for the last page": false} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, vmtest.Writer{Start: 4 << 20, Size: 24 << 20, Delay: 20_000})
			l := p.linkFor(true, "a", "b")
			l.limit.Set(6 << 20)
			p.migrate(l)
			p.until(l, "some frames", func(s proxy.Stats) bool { return s.Stats.Acked > 6<<20 })
			ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
			defer cancel()
			begun := time.Now()
			p.stopEarly(ctx, l)
			for {
				status, err := p.Dst.Status(ctx)
				if err != nil {
					t.Fatalf("%v; source %v, destination %v", err, l.src.Err(), l.dst.Err())
				}
				if status == vm.Paused {
					break
				}
				time.Sleep(2 * time.Millisecond)
			}
			ready, waiting := time.Since(begun), l.src.Stats().Waiting
			if early {
				if err := p.Dst.Cont(ctx); err != nil {
					t.Fatal(err)
				}
			}
			l.uplinks[0].set(true)
			l.uplinks[1].set(true)
			time.Sleep(time.Second)
			l.uplinks[1].set(false)
			if _, err := p.Dst.AwaitMigration(ctx); err != nil {
				t.Fatalf("%v; source %v, destination %v; %+v", err, l.src.Err(), l.dst.Err(), l.src.Stats())
			}
			if _, err := p.Src.AwaitMigration(ctx); err != nil {
				t.Fatal(err)
			}
			all, s := time.Since(begun), l.src.Stats()
			t.Logf("could run after %v with %d pages waiting, all there after %v, %d faults", ready, waiting, all, s.Faults)
			if waiting < 100 || all-ready < 500*time.Millisecond {
				t.Error("nothing was left for post-copy")
			}
			if early && s.Faults == 0 {
				t.Error("no page was asked for")
			}
			if !early {
				p.same()
				if err := p.Dst.Cont(ctx); err != nil {
					t.Fatal(err)
				}
			}
			if err := vmtest.AwaitPasses(p.Serial(p.Dst), 3, 30*time.Second); err != nil {
				t.Fatal(err)
			}
			<-l.src.Done()
			<-l.dst.Done()
			if l.src.Err() != nil || l.dst.Err() != nil {
				t.Errorf("source %v, destination %v", l.src.Err(), l.dst.Err())
			}
		})
	}
}
