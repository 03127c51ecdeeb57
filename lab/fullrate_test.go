package lab_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"godwit/lab"
	"godwit/lab/bench"
	"godwit/lab/scenario"
)

// TestFullRateBeginsLate: of a flow at full rate packets are on their way at every reading, and as many lost ones would
// not be seen. Where none may be dropped it begins so late that one reading, of those that count, was before it.
func TestFullRateBeginsLate(t *testing.T) {
	texts := map[string]string{}
	files, err := filepath.Glob("../examples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts[file] = string(text)
	}
	for _, row := range bench.Handover().Rows {
		if slices.ContainsFunc(row.Aims, func(a bench.Aim) bool { return a.Measure == "dropped" }) {
			for _, v := range row.Variants {
				texts["row "+row.Name] = v.Scenario + "  - {dropped_packets: 0}\n"
			}
		}
	}
	seen := 0
	for name, text := range texts {
		s, err := scenario.Parse(name, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(s.Expect, func(e scenario.Expect) bool { return e.Kind == scenario.ExpectDroppedPackets && e.AtMost == 0 }) {
			continue
		}
		for _, f := range s.Traffic {
			if f.Rate > 0 || !slices.Contains([]string{"upload", "download", "iperf3"}, f.Kind) {
				continue
			}
			seen++
			if moved := s.Steps[0].At.Time; s.Steps[0].Migrate == nil || f.Start <= moved-lab.Around || f.Start >= moved {
				t.Errorf("%s: %s starts at %s, and the guest moves at %s", name, f.Name, f.Start, moved)
			}
		}
	}
	if seen < 3 {
		t.Errorf("%d flows at full rate", seen)
	}
}
