package lab

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"godwit/agent/describe"
	"godwit/lab/traffic"
	"godwit/migration"
)

// TestGuestOfAnotherUsersQEMUMoves takes a guest with a disk away from a QEMU that has given up root's rights, and so
// cannot open what its agent names.
func TestGuestOfAnotherUsersQEMUMoves(t *testing.T) {
	w := buildWorld(t, twoSites)
	montreal, sanjose := w.agents["montreal"], w.agents["sanjose"]
	disk := diskOf(t, 65534)
	addr := netip.MustParsePrefix("10.1.1.50/24")
	f := startForeignWith(t, w, "montreal", addr, netip.MustParseAddr("10.1.1.1"), 2,
		"-run-with", "user=65534:65534", "-drive", "if=virtio,format=raw,file="+disk)
	if err := w.clients["phone"].Start(traffic.Flow{Name: "ticks", Kind: traffic.Ticks, Target: addr.Addr(), MPTCP: true}); err != nil {
		t.Fatal(err)
	}
	running, err := describe.Look(t.Context(), f.qmp())
	if err != nil {
		t.Fatal(err)
	}
	found, err := describe.Of(running)
	if err != nil {
		t.Fatal(err)
	}
	found.Description.Name = "web"
	if _, err := montreal.client.StartGuest(t.Context(), found.Description); err != nil {
		t.Fatalf("%v, of %s", err, found.YAML())
	}
	t.Cleanup(func() { os.RemoveAll(w.disksOf("sanjose")) }) // it is no scenario's guest, whose disk may stay
	if rep := migrate(t, montreal, "sanjose"); rep.Outcome != migration.Completed || rep.DiskBytes == 0 {
		t.Fatalf("montreal → sanjose: %s, %d bytes of its disk: %v", rep.Outcome, rep.DiskBytes, rep.Problem)
	}
	only(t, sanjose)
	tickedOn(t, w)
}

// diskOf makes a disk of another user's, whose QEMU opens it anew as the guest is stopped: in a folder that is not
// root's alone, as those of tests are.
func diskOf(t *testing.T, user int) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "godwit-disk")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	disk := filepath.Join(dir, "web.raw")
	if err := os.WriteFile(disk, []byte(strings.Repeat("web", 1<<20)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, disk} {
		if err := os.Chown(path, user, user); err != nil {
			t.Fatal(err)
		}
	}
	return disk
}
