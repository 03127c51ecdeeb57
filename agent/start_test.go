package agent

import (
	"os"
	"path/filepath"
	"testing"
)

// TestEndOfALog: a guest that floods its console does not fill the agent's memory with it.
func TestEndOfALog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "serial.log")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, c := range []struct {
		size int64
		want string
	}{{0, ""}, {3, "end"}, {1 << 34, "\x00\x00end"}} { // sparse
		if _, err := f.WriteAt([]byte("end"), max(0, c.size-3)); c.size > 0 && err != nil {
			t.Fatal(err)
		} else if c.size == 0 {
			if err := f.Truncate(0); err != nil {
				t.Fatal(err)
			}
		}
		if end, err := readEnd(path, 5); err != nil || string(end) != c.want {
			t.Errorf("%d bytes: %q, %v; want %q", c.size, end, err, c.want)
		}
	}
}
