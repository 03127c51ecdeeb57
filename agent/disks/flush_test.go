package disks

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"godwit/agent/limits"
	"godwit/migration"
	"godwit/vm"
)

// TestStorageThatHangs: what is flushed ahead ends with its effect, whatever the storage does.
func TestStorageThatHangs(t *testing.T) {
	hang, was := make(chan struct{}), syncFile
	entered := make(chan struct{})
	syncFile = func(string) error { close(entered); <-hang; return nil }
	s := &Source{Config: Config{Disks: make([]vm.Disk, 1)}}
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() { s.Flush(ctx); close(over) }()
	<-entered
	cancel()
	select {
	case <-over:
	case <-time.After(10 * time.Second):
		t.Error("it waits for the storage")
	}
	close(hang)
	syncFile = was
}

// TestDisksAreKeptFlushed: while memory is copied disks are flushed again and again, and slow storage is left to the
// guest for most of the time.
func TestDisksAreKeptFlushed(t *testing.T) {
	for name, c := range map[string]struct {
		takes time.Duration
		want  int
	}{"fast storage": {0, 29}, "slow storage": {3 * time.Second, 4}, "storage that hangs": {time.Hour, 1}} {
		synctest.Test(t, func(t *testing.T) {
			was, flushes := syncFile, 0
			defer func() { syncFile = was }()
			syncFile = func(string) error { flushes++; time.Sleep(c.takes); return nil }
			s := &Source{Config: Config{Disks: make([]vm.Disk, 1)}}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute-time.Second)
			defer cancel()
			begun := time.Now()
			s.KeepFlushed(ctx)
			took := time.Since(begun)
			time.Sleep(2 * time.Hour) // what hung has ended
			synctest.Wait()
			if took != time.Minute-time.Second || flushes != c.want {
				t.Errorf("%s: %d flushes in %v, not %d", name, flushes, took, c.want)
			}
		})
	}
}

// TestFlushedBeforeTheStop: what QEMU has to flush when it stops the guest is little, also on slow storage, where that
// is to be had; whatever it takes, memory has time to come to rest before packets are led away.
func TestFlushedBeforeTheStop(t *testing.T) {
	for name, c := range map[string]struct {
		writes  float64       // of what the storage takes meanwhile
		least   time.Duration // of a flush
		flushes int
		stop    time.Duration // at most, of the flush that QEMU makes
	}{
		"fast storage":           {0, time.Millisecond, 1, 2 * time.Millisecond},
		"slow storage":           {0.25, time.Millisecond, 4, 10 * time.Millisecond}, // 2 s, 0.5, 0.125, 0.03
		"as slow as can be":      {0.9, time.Millisecond, 1, 7 * time.Second},
		"slow whatever there is": {0, time.Second, 2, time.Second},
		"slow, and no shorter":   {0, 3900 * time.Millisecond, 2, 4 * time.Second},
		"slower than that":       {0, 9 * time.Second, 1, 9 * time.Second},
		"storage that hangs":     {0, time.Hour, 1, time.Hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			was, flushes, clean := syncFile, 0, time.Now().Add(-8*time.Second)
			defer func() { syncFile = was }()
			takes := func() time.Duration { return c.least + time.Duration(c.writes*float64(time.Since(clean))) }
			syncFile = func(string) error {
				d := takes()
				flushes++
				clean = time.Now()
				time.Sleep(d)
				return nil
			}
			s := &Source{Config: Config{Plan: migration.Plan{Downtime: 300 * time.Millisecond}, Disks: make([]vm.Disk, 1)}}
			limit := limits.Flip
			limit.For += limits.Settle.For
			ctx, cancel := limit.On(t.Context())
			defer cancel()
			begun := time.Now()
			err := s.FlushShort(ctx)
			took := time.Since(begun)
			if left := limit.For - took; err == nil && left < limits.Settle.For {
				t.Errorf("%s: %v are left for memory to come to rest", name, left)
			}
			synctest.Wait()
			if hangs := took >= limits.Flip.For; (err != nil) != hangs {
				t.Errorf("%s: %v", name, err)
			}
			if stop := takes(); flushes != c.flushes || stop > c.stop || took > limits.Flip.For {
				t.Errorf("%s: %d flushes in %v, and the stop takes %v; want %d and %v", name, flushes, took, stop, c.flushes, c.stop)
			}
			time.Sleep(2 * time.Hour) // what hung has ended
			synctest.Wait()
		})
	}
}
