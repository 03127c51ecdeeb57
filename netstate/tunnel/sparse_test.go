package tunnel

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestSparse: an uplink that is down for hours fills no log.
func TestSparse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines []string
		s := sparse{say: func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }}
		for range 3 {
			for k := range 10_000 {
				s.printf("not sent: %d", k)
			}
			time.Sleep(sparsePeriod)
		}
		if len(lines) != 3*sparseLines+2 || lines[0] != "not sent: 0" {
			t.Errorf("%d lines, the first %q", len(lines), lines[0])
		}
		if want := "9995 more lines in 1m0s before"; lines[sparseLines] != want || !slices.Contains(lines[sparseLines+1:], want) {
			t.Errorf("%q, want %q", lines[sparseLines], want)
		}
	})
}
