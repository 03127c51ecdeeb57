package qemu

import (
	"testing"

	"godwit/vm"
)

// TestHowFarAQEMUIsWithSending: also whether it may stop its guest for that by itself.
func TestHowFarAQEMUIsWithSending(t *testing.T) {
	f, p := newFake(t, "10.0.2")
	l := &Looker{qmp: p.qmp}
	caps := ""
	f.first = func(command, _ string) (string, bool) {
		if command == "query-migrate-capabilities" {
			return caps, true
		}
		return `{"status": "active"}`, true
	}
	for answer, want := range map[string]bool{
		`[{"capability": "switchover-ack", "state": true}]`:  true,
		`[{"capability": "switchover-ack", "state": false}]`: false,
		`[]`: false, // before 8.1
	} {
		caps = answer
		if status, held, err := l.Sends(t.Context()); status != vm.Active || held != want || err != nil {
			t.Errorf("%s: %s, %v, %v", answer, status, held, err)
		}
	}
}
