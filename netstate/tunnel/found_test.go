package tunnel

import (
	"os"
	"path/filepath"
	"testing"
)

// TestFoundIsNotKnown: of a directory that cannot be read it is not said that no tunnel is in it.
func TestFoundIsNotKnown(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if found, err := Found(t.Context(), dir); err == nil {
		t.Errorf("%v", found)
	}
}
