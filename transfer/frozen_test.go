package transfer_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"godwit/vm"
)

// TestLastLookAwaitsProcessors: while the guest is being stopped, and its processor has not
// stopped yet, QEMU does not finish: what the processor still writes would be lost.
func TestLastLookAwaitsProcessors(t *testing.T) {
	opts := kinds["plain"]
	p := newPair(t)
	l := p.forward(&opts)
	if err := p.Src.Migrate(t.Context(), opts); err != nil {
		t.Fatal(err)
	}
	p.stayHeld(l, 1500*time.Millisecond)

	thaw := freeze(t, p.Src.PID())
	stopped := make(chan error, 1)
	go func() { stopped <- p.Src.Stop(t.Context()) }()
	time.Sleep(time.Second)
	select {
	case err := <-stopped:
		t.Errorf("stopped while its processor was frozen: %v", err)
	default:
	}
	p.Status(p.Dst, vm.Incoming)
	thaw()
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	p.Status(p.Dst, vm.Incoming)
	p.finish(l)
}

// freeze holds the thread of a QEMU's processor until thaw, as a busy host would.
func freeze(t *testing.T, pid int) (thaw func()) {
	t.Helper()
	thread := 0
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		if comm, err := os.ReadFile(task); err == nil && strings.HasPrefix(string(comm), "CPU 0/") {
			if thread, err = strconv.Atoi(filepath.Base(filepath.Dir(task))); err != nil {
				t.Fatal(err)
			}
		}
	}
	frozen, end, over := make(chan error), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		runtime.LockOSThread() // who holds a thread is a thread
		defer runtime.UnlockOSThread()
		err := unix.PtraceSeize(thread)
		if err == nil {
			if err = unix.PtraceInterrupt(thread); err == nil {
				_, err = unix.Wait4(thread, nil, unix.WALL, nil)
			}
		}
		frozen <- err
		<-end
		unix.PtraceDetach(thread) //nolint:errcheck // its process may be gone
	}()
	if err := <-frozen; err != nil {
		t.Fatalf("freeze thread %d of QEMU %d: %v", thread, pid, err)
	}
	thaw = func() {
		close(end)
		<-over
	}
	return thaw
}
