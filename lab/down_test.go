package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"godwit/internal/child"
	"godwit/internal/need"
	"godwit/lab/topo"
)

// What is left over goes; what runs goes only when it is named, or all is meant.
func TestChooseLabs(t *testing.T) {
	found := []string{"aaaa", "bbbb", "cccc"}
	runs := func(id string) bool { return id == "bbbb" }
	for _, c := range []struct {
		name                  string
		named                 []string
		all                   bool
		chosen, left, unknown []string
	}{
		{"no id", nil, false, []string{"aaaa", "cccc"}, []string{"bbbb"}, nil},
		{"all", nil, true, found, nil, nil},
		{"one that was left", []string{"aaaa"}, false, []string{"aaaa"}, nil, nil},
		{"one that runs", []string{"bbbb"}, false, []string{"bbbb"}, nil, nil},
		{"one that is not there", []string{"dddd"}, false, nil, nil, []string{"dddd"}},
		{"a path", []string{"../x"}, false, nil, nil, []string{"../x"}},
	} {
		chosen, left, unknown := choose(found, c.named, c.all, runs)
		if !slices.Equal(chosen, c.chosen) || !slices.Equal(left, c.left) || !slices.Equal(unknown, c.unknown) {
			t.Errorf("%s: %v, %v, %v; want %v, %v, %v", c.name, chosen, left, unknown, c.chosen, c.left, c.unknown)
		}
	}
}

func init() {
	child.Register("keeps-a-lab", keepsALab)
	child.Register("who-keeps-a-lab", whoKeepsALab)
}

// whoKeepsALab says who keeps the lab of its argument, to whoever runs it.
func whoKeepsALab(args []string) int {
	pid, ok := keeper(args[0])
	fmt.Println(pid, ok)
	return 0
}

// Who may not look at what root runs does not take root's lab for one that was left.
func TestKeeperWithoutRoot(t *testing.T) {
	need.Root(t)
	id := newID()
	stop, err := guard(id, filepath.Join(t.TempDir(), "godwit-lab-"+id))
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	eventually(t, "a keeper", func() bool { _, ok := keeper(id); return ok })
	cmd := child.Command("who-keeps-a-lab", id)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if want := fmt.Sprintln(os.Getpid(), true); err != nil || string(out) != want {
		t.Errorf("%q, %v; want %q", out, err, want)
	}
}

// TestKeeperOfAnotherUser: anybody may call a process as a lab's guard is called. It keeps no lab of root's, nor has
// root end anything.
func TestKeeperOfAnotherUser(t *testing.T) {
	need.Root(t)
	id := newID()
	cmd := child.Command("reaper", id, filepath.Join(t.TempDir(), "godwit-lab-"+id))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if pid, ok := keeper(id); ok {
		t.Errorf("process %d keeps it", pid)
	}
	if _, err := in.Write([]byte("done\n")); err != nil {
		t.Error(err)
	}
	in.Close()
	cmd.Wait() //nolint:errcheck // how it ended is not what is tried
}

// keepsALab is a process that keeps the lab of its argument until it is killed.
func keepsALab(args []string) int {
	if _, err := guard(args[0], args[1]); err != nil {
		return 1
	}
	time.Sleep(time.Hour)
	return 0
}

// A lab runs for as long as the process lives that keeps it, also when that is killed.
func TestKeeper(t *testing.T) {
	id := newID()
	dir := filepath.Join(t.TempDir(), "godwit-lab-"+id)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if pid, ok := keeper(id); ok {
		t.Fatalf("before it began: process %d", pid)
	}
	cmd := child.Command("keeps-a-lab", id, dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(cmd) })
	eventually(t, "the process that keeps it", func() bool {
		pid, ok := keeper(id)
		return ok && pid == cmd.Process.Pid
	})
	end(cmd)
	eventually(t, "no process, and its files gone", func() bool {
		_, ok := keeper(id)
		_, err := os.Stat(dir)
		return !ok && os.IsNotExist(err)
	})

	stop, err := guard(id, dir)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "this process", func() bool { pid, ok := keeper(id); return ok && pid == os.Getpid() })
	stop()
	if pid, ok := keeper(id); ok {
		t.Errorf("after its end: process %d", pid)
	}
}

func end(cmd *exec.Cmd) {
	cmd.Process.Kill() //nolint:errcheck // it may have ended
	cmd.Wait()         //nolint:errcheck // it was killed
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for until := time.Now().Add(30 * time.Second); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("not in 30 s: %s", what)
		}
	}
}

// TestFoundWhereverTMPDIRIs: what a run that was killed has left is found, also the directory alone that it made first,
// and whatever the directory around it is called.
func TestFoundWhereverTMPDIRIs(t *testing.T) {
	need.Root(t)
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "[tmp]"))
	if err := os.Mkdir(os.TempDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	id, dir, err := claim(newID)
	if err != nil {
		t.Fatal(err)
	}
	if found, err := Found(); err != nil || !slices.Contains(found, id) {
		t.Fatalf("%v, %v; want %s among them", found, err, id)
	}
	if left := topo.Leftovers(id); !slices.Contains(left, "file "+dir) {
		t.Errorf("left over: %q, want %s among it", left, dir)
	}
	down, err := Down(t.Context(), []string{id}, false)
	if _, still := os.Stat(dir); err != nil || !slices.Equal(down.Removed, []string{id}) || !os.IsNotExist(still) {
		t.Errorf("%+v, %v; the directory: %v", down, err, still)
	}
}

// An id that no lab has is told from a lab that could not be removed.
func TestDownOfNoLab(t *testing.T) {
	if _, err := Down(t.Context(), []string{"none"}, false); !errors.Is(err, ErrNoLab) {
		t.Errorf("%v; want %v", err, ErrNoLab)
	}
}

// Whoever made the directory of a run before, as anybody may in /tmp, has it, and a run another.
func TestClaimTakesNobodysDirectory(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	theirs := filepath.Join(os.TempDir(), "godwit-lab-0001")
	if err := os.Mkdir(theirs, 0o777); err != nil {
		t.Fatal(err)
	}
	ids := []string{"0001", "0001", "0002"}
	id, dir, err := claim(func() string { id := ids[0]; ids = ids[1:]; return id })
	if err != nil || id != "0002" || dir != filepath.Join(os.TempDir(), "godwit-lab-0002") {
		t.Fatalf("%s, %s, %v", id, dir, err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
	if _, _, err := claim(func() string { return "0001" }); !errors.Is(err, os.ErrExist) {
		t.Errorf("where all are there: %v", err)
	}
}
