package lab_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"godwit/internal/need"
	"godwit/lab"
	"godwit/lab/bench"
	"godwit/lab/random"
)

// TestOutputOfAnother: in a directory in which everybody may make one, nothing is written to another's, in which links
// lead where he likes.
func TestOutputOfAnother(t *testing.T) {
	need.Root(t)
	tmp := t.TempDir()
	theirs := filepath.Join(tmp, "theirs")
	if err := errors.Join(os.Chmod(tmp, 0o777|fs.ModeSticky), os.Mkdir(theirs, 0o755), os.Chown(theirs, 65534, 65534)); err != nil {
		t.Fatal(err)
	}
	if _, err := bench.Run(t.Context(), nil, bench.Options{Out: theirs}); !errors.Is(err, lab.ErrUnusable) {
		t.Errorf("bench: %v", err)
	}
	if _, err := random.Run(t.Context(), random.Options{Out: theirs}); !errors.Is(err, lab.ErrUnusable) {
		t.Errorf("random: %v", err)
	}
}
