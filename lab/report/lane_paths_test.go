package report

import (
	"slices"
	"strings"
	"testing"
)

// TestPathsAreTheReports: once all had been sent, the picture has for each path what the migrations' wire_bytes_by_path
// add up to, also where the last reading was before that, or there was none; before, what was read.
func TestPathsAreTheReports(t *testing.T) {
	r := &Report{DurationS: 40, Series: &Series{}, Migrations: []Migration{
		{Guest: "web", RequestedS: 4, MemoryS: new(6.0), TotalS: new(7.0), WireBytesByPath: map[string]int64{"a-b": 50e6, "c-d": 8222}},
		{Guest: "web", RequestedS: 12, TotalS: new(0.0), Outcome: Refused},
		{Guest: "db", RequestedS: 20, TotalS: new(10.0), WireBytesByPath: map[string]int64{"a-b": 7e6, "e-f": 300e3}},
	}}
	for _, reading := range [][2]float64{{5, 0}, {9.5, 48e6}, {22, 50e6}, {29, 56e6}} {
		r.Series.Path("a-b").Add(reading[0], reading[1])
	}
	r.Series.Path("c-d").Add(9.5, 728)
	readings := slices.Clone(r.Series.Paths[0].Bytes)
	for to, want := range map[float64][]string{
		9.9: {"a-b 48 MB", "c-d 728 B", "e-f 0 B"},
		15:  {"a-b 50 MB", "c-d 8.22 kB", "e-f 0 B"},
		29:  {"a-b 56 MB", "c-d 8.22 kB", "e-f 0 B"},
		40:  {"a-b 57 MB", "c-d 8.22 kB", "e-f 300 kB"},
	} {
		svg := drawPicture(r, span{0, to}, "some of it")
		for _, text := range want {
			if !strings.Contains(svg, ">"+text+"</text>") {
				t.Errorf("to %v s: no %q", to, text)
			}
		}
	}
	if !slices.Equal(r.Series.Paths[0].Bytes, readings) || len(r.Series.Paths) != 2 {
		t.Errorf("the report's own readings are %v now", r.Series.Paths)
	}
	r.Series.Paths = nil // all of it was sent between two readings
	if svg := drawPicture(r, span{0, 40}, "no readings"); !strings.Contains(svg, ">a-b 57 MB</text>") || strings.Contains(svg, ">Rate</text>") {
		t.Error("without a reading nothing is told")
	}
}
