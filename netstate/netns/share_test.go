package netns

import (
	"os"
	"os/exec"
	"testing"

	"godwit/internal/need"
)

// inside says that the test runs in a mount namespace of its own.
const inside = "GODWIT_TEST_OWN_MOUNTS"

// TestNamespacesOfOthersBeside: ip(8) makes its first namespace while there are some of ours, and both can be
// deleted afterwards, with nothing left.
func TestNamespacesOfOthersBeside(t *testing.T) {
	need.Root(t)
	need.Program(t, "ip")
	need.Program(t, "unshare")
	if os.Getenv(inside) == "" {
		command := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c",
			`mount -t tmpfs none /run && mkdir /run/netns && exec "$0" -test.run='^TestNamespacesOfOthersBeside$' -test.v`, os.Args[0])
		command.Env = append(os.Environ(), inside+"=1")
		if said, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v:\n%s", err, said)
		}
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

// mounts lists those of this mount namespace.
func mounts(t *testing.T) string {
	t.Helper()
	all, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return string(all)
}
