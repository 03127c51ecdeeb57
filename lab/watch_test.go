package lab

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"godwit/agent"
)

// TestProgressIsKept: each sample of what the paths carried stays what it was.
func TestProgressIsKept(t *testing.T) {
	r, m := &run{opts: Options{Tell: func(string) {}}}, &move{guest: "web"}
	var want, got []int64
	for i := range int64(3) {
		data, err := json.Marshal(agent.CopyProgress{Wire: map[string]int64{"first": i}})
		if err != nil {
			t.Fatal(err)
		}
		r.heard(t.Context(), m, agent.Event{Kind: "progress", At: i, Data: data})
		want = append(want, i)
	}
	for _, w := range m.wire {
		got = append(got, w.bytes["first"])
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
