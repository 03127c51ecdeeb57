package lab

import (
	"encoding/json"
	"testing"

	"godwit/agent/record"
	"godwit/lab/report"
)

// TestPageReadsTheDataPath: what the page reads of data_path, the agent tells by that name.
func TestPageReadsTheDataPath(t *testing.T) {
	fields := func(value any) map[string]any {
		data, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		var out map[string]any
		if err := json.Unmarshal(data, &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	within := func(what string, read, told map[string]any) {
		for name := range read {
			if _, ok := told[name]; !ok {
				t.Errorf("%s: the page reads %s, which no agent tells", what, name)
			}
		}
	}
	within("data_path", fields(report.DataPath{}), fields(record.DataPath{LargestQueue: 1, LargestSpill: 1, Opaque: "x"}))
	within("data_path.paths", fields(report.PathShare{}), fields(record.PathRate{Last: "x", Unopened: true}))
}
