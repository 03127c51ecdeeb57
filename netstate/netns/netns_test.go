package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"godwit/internal/need"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("godwit/netstate/netns.fork"))
}

// make1 creates a namespace of this test and deletes it afterwards.
func make1(t *testing.T, suffix string) string {
	t.Helper()
	need.Root(t)
	name := fmt.Sprintf("t-netns-%d-%s", os.Getpid(), suffix)
	if err := Create(name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := Delete(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	})
	return name
}

func inode(t *testing.T) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(self, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

func TestCreateListDelete(t *testing.T) {
	name := make1(t, "a")
	if err := Create(name); !errors.Is(err, fs.ErrExist) {
		t.Errorf("create twice: %v, want fs.ErrExist", err)
	}
	names, err := List(name)
	if err != nil || !slices.Equal(names, []string{name}) {
		t.Errorf("list: %v, %v", names, err)
	}
	if err := Delete(name); err != nil {
		t.Fatal(err)
	}
	if err := Delete(name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("delete twice: %v, want fs.ErrNotExist", err)
	}
	if _, err := os.Lstat(Path(name)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("file remains: %v", err)
	}
}

func TestDeleteHalfMade(t *testing.T) {
	name := make1(t, "half")
	if err := unix.Unmount(Path(name), unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	if err := Delete(name); err != nil {
		t.Errorf("delete a name with nothing mounted: %v", err)
	}
}

// TestOnce: what is done once is done in a namespace of its own, that nobody finds.
func TestOnce(t *testing.T) {
	need.Root(t)
	want := errors.New("so it is")
	err := Once(func() error {
		links, err := net.Interfaces()
		if err != nil || len(links) != 1 || links[0].Flags&net.FlagUp != 0 {
			t.Errorf("links %v, %v: want a loopback that is down", links, err)
		}
		out, err := exec.Command("cat", "/proc/self/net/dev").Output()
		if lines := len(strings.Split(strings.TrimSpace(string(out)), "\n")); err != nil || lines != 3 {
			t.Errorf("a program that it starts sees %s, %v", out, err)
		}
		return want
	})
	if !errors.Is(err, want) {
		t.Errorf("%v, want what it said", err)
	}
}

func TestNamesThatLeaveTheFolder(t *testing.T) {
	for _, name := range []string{"", ".", "..", "a/b", "../x"} {
		if err := Create(name); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("create %q: %v, want fs.ErrInvalid", name, err)
		}
		if err := Delete(name); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("delete %q: %v, want fs.ErrInvalid", name, err)
		}
	}
}

func TestDoNestsAndRestores(t *testing.T) {
	a, b := make1(t, "a"), make1(t, "b")
	outside := inode(t)
	boom := errors.New("boom")
	err := Do(a, func() error {
		inA := inode(t)
		if inA == outside {
			t.Error("not inside a")
		}
		err := Do(b, func() error {
			if in := inode(t); in == inA || in == outside {
				t.Error("not inside b")
			}
			return boom
		})
		if inode(t) != inA {
			t.Error("not back in a")
		}
		return err
	})
	if !errors.Is(err, boom) {
		t.Errorf("error of f: %v", err)
	}
	if inode(t) != outside {
		t.Error("not back outside")
	}
	func() {
		defer func() { _ = recover() }()
		_ = Do(a, func() error { panic("in f") })
	}()
	if inode(t) != outside {
		t.Error("not back outside after a panic")
	}
	if err := Do("t-no-such", func() error { t.Error("f ran"); return nil }); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing namespace: %v", err)
	}
}

func TestDoInParallelKeepsThreadsApart(t *testing.T) {
	names := []string{make1(t, "a"), make1(t, "b")}
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			for range 20 {
				var st unix.Stat_t
				name := names[i%2]
				_ = unix.Stat(Path(name), &st)
				if err := Do(name, func() error {
					if in := inode(t); in != st.Ino {
						t.Errorf("in %d, want %d", in, st.Ino)
					}
					return nil
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func TestSysctlIsOfTheNamespace(t *testing.T) {
	name := make1(t, "a")
	before, err := ReadSysctl("net.ipv4.ip_default_ttl")
	if err != nil {
		t.Fatal(err)
	}
	err = Do(name, func() error {
		if err := Sysctl("net.ipv4.ip_default_ttl", "17"); err != nil {
			return err
		}
		got, err := ReadSysctl("net/ipv4/ip_default_ttl")
		if got != "17" {
			t.Errorf("inside: %q", got)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if after, _ := ReadSysctl("net.ipv4.ip_default_ttl"); after != before {
		t.Errorf("outside changed from %s to %s", before, after)
	}
}

func TestStartAndProcesses(t *testing.T) {
	name := make1(t, "a")
	for _, death := range []syscall.Signal{0, syscall.SIGKILL} {
		cmd := exec.Command("sleep", "30")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: death}
		if err := Start(name, cmd); err != nil {
			t.Fatal(err)
		}
		// Let threads die: a parent-death signal tied to one of them would fire.
		var wg sync.WaitGroup
		for range 8 {
			other := make1(t, fmt.Sprintf("x%d%d", death, time.Now().UnixNano()))
			wg.Go(func() { _ = Do(other, func() error { return nil }) })
		}
		wg.Wait()
		if got := Processes(name); !slices.Equal(got, []int{cmd.Process.Pid}) {
			t.Errorf("death signal %d: processes %v, want %d", death, got, cmd.Process.Pid)
		}
		cmd.Process.Kill()
		cmd.Wait()
		if got := Processes(name); len(got) != 0 {
			t.Errorf("processes after the end: %v", got)
		}
	}
	if got := Processes("t-no-such"); got != nil {
		t.Errorf("processes of a missing namespace: %v", got)
	}
}

func TestHandleSeesItsNamespace(t *testing.T) {
	name := make1(t, "a")
	handle, err := Handle(name)
	if err != nil {
		t.Fatal(err)
	}
	defer handle.Close()
	links, err := handle.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if link.Attrs().Name != "lo" && link.Attrs().Flags&net.FlagUp != 0 {
			t.Errorf("unexpected device %s", link.Attrs().Name)
		}
	}
}
