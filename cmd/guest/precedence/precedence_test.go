package precedence

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"godwit/internal/need"

	"golang.org/x/sys/unix"
)

// stand runs a program by a name that no other has.
func stand(t *testing.T) (pid int, name string) {
	t.Helper()
	need.Root(t)
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	name = "gw-raise"
	path := filepath.Join(t.TempDir(), name)
	if err := os.Symlink(sleep, path); err != nil {
		t.Fatal(err)
	}
	command := exec.Command(path, "60")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = command.Process.Kill(); _ = command.Wait() })
	need.Started(t, command)
	return command.Process.Pid, name
}

func wantNice(t *testing.T, pid, want int) {
	t.Helper()
	if nice, err := niceOf(pid); err != nil || nice != want {
		t.Errorf("nice value %d, %v; want %d", nice, err, want)
	}
}

func TestRaisedForAWhile(t *testing.T) {
	pid, name := stand(t)
	if err := unix.Setpriority(unix.PRIO_PROCESS, pid, 3); err != nil {
		t.Fatal(err)
	}
	threads := &Threads{name: name}
	while := 20 * time.Millisecond
	for threads.Raise(while); ; threads.Raise(while) {
		if nice, err := niceOf(pid); err != nil || nice == receiving {
			break
		}
		if while *= 4; while > 10*time.Second { // a busy machine may look when the first is over
			t.Fatal("it is not raised")
		}
	}
	threads.Raise(while + 30*time.Millisecond) // again: from now on
	for start := time.Now(); time.Since(start) < 30*time.Second; time.Sleep(5 * time.Millisecond) {
		if nice, err := niceOf(pid); err == nil && nice != receiving {
			break
		}
	}
	wantNice(t, pid, 3)
}

// TestRaisedForLess: who needs it for a moment does not end it for who needs it longer.
func TestRaisedForLess(t *testing.T) {
	pid, name := stand(t)
	before, err := niceOf(pid)
	if err != nil {
		t.Fatal(err)
	}
	threads := &Threads{name: name}
	threads.Raise(time.Hour)
	threads.Raise(time.Millisecond)
	time.Sleep(50 * time.Millisecond)
	wantNice(t, pid, receiving)
	threads.Restore()
	wantNice(t, pid, before)
}

// TestRaisedAtTheEnd: what is raised again at the moment at which its while ends gets back what it had before the first.
func TestRaisedAtTheEnd(t *testing.T) {
	pid, name := stand(t)
	if err := unix.Setpriority(unix.PRIO_PROCESS, pid, 3); err != nil {
		t.Fatal(err)
	}
	threads := &Threads{name: name}
	threads.Raise(time.Hour)
	threads.ends.Stop() // as if it had fired, and Restore came second
	threads.Raise(time.Hour)
	threads.Restore()
	wantNice(t, pid, 3)
}

func TestRestoredUnlessSomebodyElseDid(t *testing.T) {
	pid, name := stand(t)
	threads := &Threads{name: name}
	threads.Raise(time.Hour)
	if err := unix.Setpriority(unix.PRIO_PROCESS, pid, 7); err != nil {
		t.Fatal(err)
	}
	threads.Restore()
	wantNice(t, pid, 7)
	if err := unix.Setpriority(unix.PRIO_PROCESS, pid, receiving-5); err != nil {
		t.Fatal(err)
	}
	threads.Raise(time.Hour) // it is before the others already
	wantNice(t, pid, receiving-5)
	threads.Restore()
	wantNice(t, pid, receiving-5)
}

// TestKernelThreadsAreFound: without them, thousands of connections join late.
func TestKernelThreadsAreFound(t *testing.T) {
	need.Root(t)
	if name, err := os.ReadFile("/proc/2/comm"); err != nil || string(name) != "kthreadd\n" {
		t.Skip("the kernel's threads are not seen from here: no kthreadd in /proc")
	}
	if len((&Threads{}).find()) == 0 {
		t.Error("no thread takes packets in")
	}
}

// TestResetAfterAKill: what a run of the program has raised, and was killed before it gave it back, is as it was when
// the next has begun; what somebody else has chosen stays.
func TestResetAfterAKill(t *testing.T) {
	pid, name := stand(t)
	killed := &Threads{name: name}
	killed.Raise(time.Hour)
	wantNice(t, pid, receiving)
	next := &Threads{name: name}
	next.Reset()
	wantNice(t, pid, 0)
	if err := unix.Setpriority(unix.PRIO_PROCESS, pid, receiving+1); err != nil {
		t.Fatal(err)
	}
	next.Reset()
	wantNice(t, pid, receiving+1)
}

// TestBehind: the first process comes before others; its thread that announces does not.
func TestBehind(t *testing.T) {
	need.Root(t)
	runtime.LockOSThread() // and is not unlocked: the thread ends with the test
	if err := unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), -5); err != nil {
		t.Fatal(err)
	}
	refused := errors.New("refused")
	err := Behind(func() error {
		wantNice(t, unix.Gettid(), announcing)
		return refused
	})
	if !errors.Is(err, refused) {
		t.Errorf("%v", err)
	}
	wantNice(t, unix.Gettid(), -5)
}

// TestFoundBeforehand: threads that were found beforehand are not looked for again.
func TestFoundBeforehand(t *testing.T) {
	pid, name := stand(t)
	if err := unix.Setpriority(unix.PRIO_PROCESS, pid, 3); err != nil {
		t.Fatal(err)
	}
	threads := Named(name)
	threads.Prepare()
	threads.name = "gw-nobody"
	threads.Raise(time.Hour)
	wantNice(t, pid, receiving)
	threads.Restore()
	wantNice(t, pid, 3)
}
