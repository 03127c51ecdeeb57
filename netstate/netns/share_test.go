package netns

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"godwit/internal/need"
)

// inside says that the test runs in a mount namespace of its own.
const inside = "GODWIT_TEST_OWN_MOUNTS"

// ownRun names the file system at /run there.
const ownRun = "t-netns-run"

// TestNamespacesOfOthersBeside: ip(8) makes its first namespace while there are some of ours, and both can be
// deleted afterwards, with nothing left.
func TestNamespacesOfOthersBeside(t *testing.T) {
	need.Root(t)
	need.Program(t, "ip")
	need.Program(t, "unshare")
	if !ownMounts(t) {
		return
	}
	before := mounts(t)
	ours := "t-netns-ours"
	if err := Create(ours); err != nil {
		t.Fatal(err)
	}
	for _, words := range [][]string{{"add", "t-netns-theirs"}, {"del", "t-netns-theirs"}} {
		if said, err := exec.Command("ip", append([]string{"netns"}, words...)...).CombinedOutput(); err != nil {
			t.Errorf("ip netns %v: %v: %s", words, err, said)
		}
	}
	if err := Delete(ours); err != nil {
		t.Error(err)
	}
	if after := mounts(t); after != before {
		t.Errorf("mounts before:\n%s\nand after:\n%s", before, after)
	}
}

// TestEndsAsOthersBegin: of namespaces that are made while others end, so that there is none at times, each can be
// deleted, with nothing left.
func TestEndsAsOthersBegin(t *testing.T) {
	need.Root(t)
	need.Program(t, "unshare")
	if !ownMounts(t) {
		return
	}
	before := mounts(t)
	var all sync.WaitGroup
	for one := range 2 {
		all.Go(func() {
			name := fmt.Sprintf("t-netns-%d", one)
			for range 1000 {
				if err := Create(name); err != nil {
					t.Error(err)
					return
				}
				if err := Delete(name); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if after := mounts(t); after != before {
		t.Errorf("mounts before:\n%s\nand after:\n%s", before, after)
	}
}

// ownMounts says whether the test runs in a mount namespace of its own; else it has run there.
func ownMounts(t *testing.T) bool {
	t.Helper()
	if os.Getenv(inside) != "" {
		return true
	}
	command := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c",
		`mount -t tmpfs "$2" /run && mkdir /run/netns && exec "$0" -test.run="^$1$" -test.v`, os.Args[0], t.Name(), ownRun)
	command.Env = append(os.Environ(), inside+"=1")
	if said, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v:\n%s", err, said)
	}
	return false
}

// mounts lists those below the test's own /run: the rest of the machine's may come and go meanwhile, as a mount ends
// in every mount namespace where its file is deleted in one. proc(5), mountinfo.
func mounts(t *testing.T) string {
	t.Helper()
	all, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	below := map[string]bool{}
	var found []string
	for line := range strings.Lines(string(all)) {
		words := strings.Fields(line)
		id, parent, root, on := words[0], words[1], words[3], words[4]
		if on == "/run" && root == "/" && strings.Contains(line, " - tmpfs "+ownRun+" ") || below[parent] {
			below[id] = true
			found = append(found, line)
		}
	}
	if len(found) == 0 {
		t.Fatalf("no /run of the test's own among\n%s", all)
	}
	return strings.Join(found, "")
}
