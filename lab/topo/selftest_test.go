package topo

import (
	"context"
	"errors"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/internal/need"
)

// tries is how often links are measured until they are what was asked for: a machine that does
// something else for a moment is no fault of theirs, and one that they have shows each time.
const tries = 8

// TestSelfTest runs one short trial, or all of them where GODWIT_SELFTEST is set.
func TestSelfTest(t *testing.T) {
	need.Lab(t)
	some := []trial{{rtt: 20 * time.Millisecond, rate: 100e6}}
	if os.Getenv("GODWIT_SELFTEST") != "" {
		some = trials
	}
	var out strings.Builder
	off := some
	for range tries {
		results, err := selfTest(t.Context(), testID(90), &out, off)
		if err != nil {
			t.Fatal(err)
		}
		off = slices.DeleteFunc(slices.Clone(off), func(c trial) bool {
			return !slices.ContainsFunc(results, func(r Result) bool { return r.Name == c.String() && math.Abs(r.Got-r.Asked) > 2*tolerance*r.Asked })
		})
		if len(off) == 0 {
			break
		}
	}
	t.Log("\n" + out.String())
	if len(off) > 0 {
		t.Errorf("off the mark %d times: %v", tries, off)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := selfTest(ctx, testID(90), &out, some); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a selftest whose context ends: %v", err)
	}
}
