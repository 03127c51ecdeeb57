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

// measuredFor is how long links are measured until each figure was what was asked for: a machine that does something else
// meanwhile, or has less of its own, is no fault of theirs, and one that they have shows each time.
const measuredFor = 3 * time.Minute

// TestSelfTestJudges: a figure that is more than 5 % from what was asked for is OFF.
func TestSelfTestJudges(t *testing.T) {
	for got, verdict := range map[float64]string{94.9: "OFF", 95.1: "ok", 100: "ok", 104.9: "ok", 105.1: "OFF"} {
		r := Result{Name: "20 ms, 100 Mbit/s", What: "rate", Unit: "Mbit/s", Asked: 100, Got: got, Links: "user"}.judged()
		if words := strings.Fields(r.String()); r.OK != (verdict == "ok") || words[len(words)-2] != verdict {
			t.Errorf("%v of 100: ok %v, %q; want %s", got, r.OK, r, verdict)
		}
	}
}

// TestSelfTest runs one short trial, or all of them where GODWIT_SELFTEST is set.
func TestSelfTest(t *testing.T) {
	need.Lab(t)
	some := []trial{{rtt: 20 * time.Millisecond, rate: 100e6}}
	if os.Getenv("GODWIT_SELFTEST") != "" {
		some = trials
	}
	var out strings.Builder
	right := map[string]bool{}
	off := some
	for until := time.Now().Add(measuredFor); ; {
		results, err := selfTest(t.Context(), testID(90), &out, off)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			right[r.Name+r.What] = right[r.Name+r.What] || math.Abs(r.Got-r.Asked) <= 2*tolerance*r.Asked
		}
		off = slices.DeleteFunc(slices.Clone(off), func(c trial) bool {
			return !slices.ContainsFunc(results, func(r Result) bool { return r.Name == c.String() && !right[r.Name+r.What] })
		})
		if len(off) == 0 || time.Now().After(until) {
			break
		}
	}
	t.Log("\n" + out.String())
	if len(off) > 0 {
		t.Errorf("off the mark for %v: %v", measuredFor, off)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := selfTest(ctx, testID(90), &out, some); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a selftest whose context ends: %v", err)
	}
}
