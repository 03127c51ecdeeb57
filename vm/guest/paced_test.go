package guest

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// endless says one thing again and again, and counts how much.
type endless struct {
	text  string
	bytes int
}

func (e *endless) Read(b []byte) (int, error) {
	n := 0
	for n < len(b) {
		n += copy(b[n:], e.text)
	}
	e.bytes += n
	return n, nil
}

// TestPaced: what a guest says without end is read at a rate, empty lines, a line that does not end, and noise; what
// guests have to say is read at once.
func TestPaced(t *testing.T) {
	const seconds = 8
	for name, c := range map[string]struct {
		text string
		most int // bytes
	}{
		"empty lines": {"\n", (pacedFree + seconds*pacedRate) / pacedLine},
		"noise":       {"x\n", 2 * (pacedFree + seconds*pacedRate) / pacedLine},
		"no end":      {"x", pacedFree + seconds*pacedRate},
	} {
		synctest.Test(t, func(t *testing.T) {
			said := &endless{text: strings.Repeat(c.text, 2048)}
			from, b := Paced(said), make([]byte, 4096)
			for begun := time.Now(); time.Since(begun) < seconds*time.Second; {
				if _, err := from.Read(b); err != nil {
					t.Fatal(err)
				}
			}
			if said.bytes > c.most+2*len(b) || said.bytes < c.most/2 {
				t.Errorf("%s: %d bytes were read in %d s, want %d at most", name, said.bytes, seconds, c.most)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		lines := newLines(Paced(strings.NewReader(strings.Repeat(strings.Repeat("x", MaxLine-1)+"\n", 20))))
		for {
			_, err := lines.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begun); took > 0 {
			t.Errorf("20 long lines took %v", took)
		}
	})
}
