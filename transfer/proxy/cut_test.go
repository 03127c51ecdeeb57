package proxy_test

import (
	"context"
	"testing"
	"time"

	"godwit/transfer/proxy"
	"godwit/vm/vmtest"
)

// TestSilentCutAtTheSwitch: a path on which packets vanish when the guest is about to be stopped, with frames
// on its lane that it waits for, costs a fraction of the time after which that lane is dead.
func TestSilentCutAtTheSwitch(t *testing.T) {
	p := newPair(t, vmtest.Writer{Start: 4 << 20, Size: 24 << 20, Delay: 20_000})
	l := p.linkFor(true, "a", "b")
	l.limit.Set(6 << 20)
	p.migrate(l)
	p.until(l, "some frames", func(s proxy.Stats) bool { return s.Stats.Acked > 6<<20 })
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	l.uplinks[0].silent.Store(true)
	time.Sleep(100 * time.Millisecond) // frames are on it
	begun := time.Now()
	p.stopEarly(ctx, l)
	select {
	case <-l.dst.HandedOver():
	case <-ctx.Done():
		t.Fatalf("not handed over: source %v, destination %v", l.src.Err(), l.dst.Err())
	}
	took, s := time.Since(begun), l.src.Stats()
	t.Logf("could run after %v; %+v", took, s.Paths)
	if took > time.Second && s.Paths[0].Died > 0 { // else it is this machine that is slow
		t.Errorf("could run after %v", took)
	}
	l.limit.Set(0)
	if _, err := p.Dst.AwaitMigration(ctx); err != nil {
		t.Fatalf("%v; source %v, destination %v; %+v", err, l.src.Err(), l.dst.Err(), l.src.Stats())
	}
	p.same()
}
