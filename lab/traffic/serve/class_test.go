package serve

import (
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"godwit/internal/need"
	"godwit/lab/traffic/record"
)

// TestClass: it is that of every thread of the process.
func TestClass(t *testing.T) {
	need.Root(t)
	t.Cleanup(func() { setClass(among) })
	for _, c := range []class{before, first, among} {
		setClass(c)
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil || len(threads) < 2 {
			t.Fatalf("%d threads, %v", len(threads), err)
		}
		for _, thread := range threads {
			id, _ := strconv.Atoi(thread.Name())
			has, err := unix.SchedGetAttr(id, 0)
			if err == unix.ESRCH { //nolint:errorlint // it ended meanwhile
				continue
			}
			if err != nil || has.Priority != uint32(c) || (has.Policy == unix.SCHED_FIFO) != (c != among) {
				t.Errorf("thread %d: policy %d, priority %d, %v; want class %d", id, has.Policy, has.Priority, err, c)
			}
		}
	}
}

// TestFewGoFirst: ticks leave before all else while they are few, whoever comes and goes.
func TestFewGoFirst(t *testing.T) {
	var set []class
	l := line{set: func(c class) { set = append(set, c) }}
	fast, slow := record.Hello{Every: 10 * time.Millisecond}, record.Hello{Every: time.Hour}
	var leave []func()
	for range 4 {
		leave = append(leave, l.enter(fast)) // 4 times 100 ticks and 10 pings a second
	}
	for range 6 {
		leave = append(leave, l.enter(slow))
	}
	if len(set) != 0 {
		t.Fatalf("500 a second: set to %v", set)
	}
	one := l.enter(slow)
	another := l.enter(fast)
	another()
	if want := []class{among}; !slices.Equal(set, want) {
		t.Fatalf("510 and more: set to %v, want %v", set, want)
	}
	one()
	for _, f := range leave {
		f()
	}
	if want := []class{among, before}; !slices.Equal(set, want) || l.rate != 0 {
		t.Fatalf("all have gone: set to %v, want %v; %d a second are left", set, want, l.rate)
	}
}
