package leftover

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"godwit/agent/config"
)

// TestHalfWritten: what was cut off in writing is found in both of an agent's directories, whatever the clock was then;
// what may be being written is not.
func TestHalfWritten(t *testing.T) {
	c := &config.Config{State: t.TempDir(), Run: t.TempDir()}
	write := func(path string, off time.Duration) string {
		t.Helper()
		at := time.Now().Add(off)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
		return path
	}
	want := []string{
		write(filepath.Join(c.State, ".tmp-1"), -time.Hour), write(filepath.Join(c.State, ".tmp-2"), 24*time.Hour), write(filepath.Join(c.Run, "guests", ".tmp-3"), -time.Hour),
	}
	write(filepath.Join(c.State, ".tmp-now"), 0)
	found, err := halfWritten(t.Context(), c, nil)
	var got []string
	for _, f := range found {
		got = append(got, f.Name)
	}
	if !slices.Equal(got, want) || err != nil {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
}
