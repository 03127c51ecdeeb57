package image

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"godwit/internal/need"
)

// TestReproducible: whoever builds the image tiny of the same sources gets the same bytes, at another
// time and place, with another time zone, language and umask.
func TestReproducible(t *testing.T) {
	need.Root(t)
	need.File(t, "../../build/kernel") // or the build would fetch it: make build
	build := func(umask string, env ...string) string {
		out := t.TempDir()
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", "umask "+umask+" && exec scripts/with-go scripts/guest-image")
		cmd.Dir = "../.."
		cmd.Env = append(append(os.Environ(), "GUEST_OUT="+out), env...)
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, said)
		}
		return out
	}
	one, other := build("022", "TZ=UTC", "LC_ALL=C"), build("077", "TZ=Pacific/Auckland", "LC_ALL=C.UTF-8")
	for _, name := range []string{"vmlinuz", "initrd.img", "init"} {
		a, err := os.ReadFile(filepath.Join(one, name))
		if err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(filepath.Join(other, name)); err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s: built twice, it differs (%d and %d bytes, %v)", name, len(a), len(b), err)
		}
	}
}
