package agent

import (
	"bytes"
	"testing"

	"godwit/agent/record"
)

// TestNewID: a migration gets no id that another of the host has had, be that one that left, that came, or that is kept
// in short.
func TestNewID(t *testing.T) {
	a := between(t)
	keepOld(t, a, "m-00000001.json", record.Report{ID: "m-00000001", From: "rome", To: "paris", Ended: 1})
	newerThanAll(t, a)
	if err := a.records.Shorten(t.Context(), func(string) bool { return false }); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"m-00000002.json", "m-00000003-destination.json"} {
		keepOld(t, a, name, record.Report{ID: name[:10], From: "rome", To: "paris", Ended: 1})
	}
	drawn := []byte{0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0xab, 0, 0, 4, 0, 0, 0, 5}
	if id := a.newID(bytes.NewReader(drawn)); id != "m-ab000004" {
		t.Errorf("the id is %s", id)
	}
}
