package topo

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"godwit/internal/need"
)

// TestSelfTest runs one short trial, or all of them where GODWIT_SELFTEST is set. It
// judges the measuring, with room for a machine that is busy with other tests.
func TestSelfTest(t *testing.T) {
	need.Root(t)
	some := []trial{{rtt: 20 * time.Millisecond, rate: 100e6}}
	if os.Getenv("GODWIT_SELFTEST") != "" {
		some = trials
	}
	var out strings.Builder
	results, err := selfTest(t.Context(), testID(90), &out, some)
	t.Log("\n" + out.String())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Got < 0.9*r.Asked || r.Got > 1.1*r.Asked {
			t.Errorf("%s: %s of %.4g %s, asked for %.4g", r.Name, r.What, r.Got, r.Unit, r.Asked)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := selfTest(ctx, testID(90), &out, some); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a selftest whose context ends: %v", err)
	}
}
