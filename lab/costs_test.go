package lab

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"godwit/agent/config"
	"godwit/lab/report"
)

// TestGuestsThreadsThatEnded: what a guest's own processors used is not the host's, also once their threads have ended,
// which may be while the process gives its memory back.
func TestGuestsThreadsThatEnded(t *testing.T) {
	const burnt = 300 * time.Millisecond
	thread, ends := make(chan int), make(chan struct{})
	var burn func()
	burn = func() {
		runtime.LockOSThread()              // it ends with this
		if unix.Gettid() == unix.Getpid() { // but for the process's first
			go burn()
			<-ends
			return
		}
		if err := os.WriteFile(fmt.Sprintf("/proc/self/task/%d/comm", unix.Gettid()), []byte("CPU 0/TCG"), 0); err != nil {
			t.Error(err)
		}
		for begun := threadTime(); threadTime()-begun < burnt; { //nolint:revive // that is the work
		}
		thread <- unix.Gettid()
		<-ends
	}
	go burn()
	id := <-thread
	var p processors
	look := func() (sum time.Duration) {
		all, guests, ok := used(os.Getpid())
		if !ok {
			t.Fatal("nothing is known of this process")
		}
		p.saw(os.Getpid(), all, guests)
		return p.sum()
	}
	lived := look()
	close(ends)
	for there := true; there; time.Sleep(time.Millisecond) {
		_, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", id))
		there = err == nil
	}
	if ended := look(); ended-lived > burnt/2 {
		t.Errorf("%v while it lived, %v after that", lived, ended)
	}
}

// threadTime is what the calling thread has used of processors.
func threadTime() time.Duration {
	var used unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &used)
	return time.Duration(used.Nano())
}

// TestWhyNoLeast: where there is no bound of the bytes, the report says why.
func TestWhyNoLeast(t *testing.T) {
	c := config.Config{Run: t.TempDir()}
	r := &run{opts: Options{Costs: true}, w: &world{agents: map[string]*hostAgent{"montreal": {config: c}}}}
	for left, want := range map[string]string{"": "kept no memory", "/nonexistent": "not sealed by this host's key"} {
		out := report.Migration{}
		r.fillCosts(&out, &move{from: "montreal", left: left})
		if why := out.WhyNull["least_bytes"]; out.LeastBytes != nil || !strings.Contains(why, want) {
			t.Errorf("left %q: %v, %q", left, out.LeastBytes, why)
		}
	}
}
