package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"testing"

	"godwit/lab"
	"godwit/lab/topo"
)

// TestSelfTestFails: one figure that is off is enough for its status, also where all is printed as JSON.
func TestSelfTestFails(t *testing.T) {
	was := geteuid
	geteuid = func() int { return 0 }
	t.Cleanup(func() { geteuid, selfTest = was, lab.SelfTest })
	for _, c := range []struct {
		found []bool
		want  int
	}{{[]bool{true, true}, exitDone}, {[]bool{true, false}, exitFailed}, {[]bool{false, true}, exitFailed}} {
		selfTest = func(context.Context, io.Writer) (results []topo.Result, err error) {
			for _, ok := range c.found {
				results = append(results, topo.Result{Name: "20 ms", What: "rtt", Unit: "ms", Asked: 20, Got: 20, OK: ok})
			}
			return results, nil
		}
		for _, args := range [][]string{{"lab", "selftest"}, {"lab", "selftest", "--json"}} {
			var out, errOut bytes.Buffer
			if status := run(args, &out, &errOut); status != c.want || errOut.Len() > 0 {
				t.Errorf("%v, figures that are ok: %v: status %d, want %d; it said %q", args, c.found, status, c.want, &errOut)
			}
			if len(args) < 3 {
				continue
			}
			var printed []topo.Result
			if err := json.Unmarshal(out.Bytes(), &printed); err != nil || len(printed) != 2 || printed[0].OK != c.found[0] || printed[1].OK != c.found[1] {
				t.Errorf("%v: it printed %q, %v", args, &out, err)
			}
		}
	}
}
