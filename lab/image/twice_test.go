package image

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestMadeTwiceAtOnce: of two who want the image tiny at the same time one makes it, and the other waits for that: both
// made it in each other's way. What is there is not made again. The scripts that make it, and Go, have stand-ins.
func TestMadeTwiceAtOnce(t *testing.T) {
	root, file := sourceOf(t, "image", "with-go")
	file("scripts/guest-image", `#!/bin/sh
echo begun >>"$0.log"
mkdir "$0.alone" || exit 1
while [ ! -e "$0.goon" ]; do sleep 0.01; done
for f in vmlinuz initrd.img init; do echo x >build/guest/$f; done
rmdir "$0.alone"
`, 0o755)
	file("bin/go", "#!/bin/sh\n[ \"$1\" = list ] || echo go1.26.0\n", 0o755)
	file("scripts/guest-program", "", 0o755)
	file("go.mod", "", 0o644)
	file("go.sum", "", 0o644)
	begun := filepath.Join(root, "scripts/guest-image.log")
	made := func() int {
		said, _ := os.ReadFile(begun)
		return strings.Count(string(said), "begun")
	}

	one, other := makeImage(t, root), makeImage(t, root)
	for made() == 0 || made() == 1 && !other.waits() && !one.waits() { // for the other, or both are at it
		if one.ended() && other.ended() {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	file("scripts/guest-image.goon", "", 0o644)
	for i, p := range []*making{one, other, makeImage(t, root)} {
		if <-p.done; p.err != nil {
			t.Errorf("%d: %v: %s", i, p.err, &p.said)
		}
	}
	if n := made(); n != 1 {
		t.Errorf("it was made %d times", n)
	}
	if _, err := os.Stat(filepath.Join(root, "bin/godwit-guest")); err != nil {
		t.Error(err)
	}
}

// TestGoOfDistribution: a Go that is older than go.mod asks for, and that fetches no other by itself, as Debian's, is
// told to.
func TestGoOfDistribution(t *testing.T) {
	root, file := sourceOf(t, "image", "with-go")
	file("bin/go", `#!/bin/sh
case $1 in
list) [ "$GOTOOLCHAIN" = auto ] || { echo "go: go.mod requires go >= 1.26.0 (running go 1.23.4; GOTOOLCHAIN=local)" >&2; exit 1; } ;;
env) echo go1.23.4 ;;
esac
`, 0o755)
	file("scripts/guest-image", "#!/bin/sh\nfor f in vmlinuz initrd.img init; do echo x >build/guest/$f; done\n", 0o755)
	file("scripts/guest-program", "", 0o755)
	file("go.mod", "", 0o644)
	file("go.sum", "", 0o644)
	t.Setenv("GOTOOLCHAIN", "local")
	if p := makeImage(t, root); !p.succeeds() {
		t.Errorf("%v: %s", p.err, &p.said)
	}
}

// sourceOf is a source tree with some of the scripts, and what writes more files there.
func sourceOf(t *testing.T, scripts ...string) (root string, file func(path, text string, mode os.FileMode)) {
	t.Helper()
	root = t.TempDir()
	file = func(path, text string, mode os.FileMode) {
		t.Helper()
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range scripts {
		script, err := os.ReadFile(filepath.Join("../../scripts", name))
		if err != nil {
			t.Fatal(err)
		}
		file(filepath.Join("scripts", name), string(script), 0o755)
	}
	return root, file
}

// making is a run of a script.
type making struct {
	cmd  *exec.Cmd
	said bytes.Buffer
	err  error // read it after done
	done chan struct{}
}

func makeImage(t *testing.T, root string) *making { return run(t, root, "scripts/image") }

// run runs it with the programs of root's bin before all others.
func run(t *testing.T, root, script string) *making {
	t.Helper()
	p := &making{cmd: exec.CommandContext(t.Context(), filepath.Join(root, script)), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), "PATH="+filepath.Join(root, "bin")+":"+os.Getenv("PATH"))
	p.cmd.Stdout, p.cmd.Stderr = &p.said, &p.said
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p
}

func (p *making) succeeds() bool {
	<-p.done
	return p.err == nil
}

func (p *making) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// waits says whether it waits for a lock.
func (p *making) waits() bool {
	pid := p.cmd.Process.Pid
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid))
	if err != nil {
		return false
	}
	for _, child := range strings.Fields(string(children)) {
		if name, err := os.ReadFile("/proc/" + child + "/comm"); err == nil && strings.TrimSpace(string(name)) == "flock" {
			return true
		}
	}
	return false
}
