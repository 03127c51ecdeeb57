package qemu

import (
	"slices"
	"strings"
	"testing"
)

// TestOneMirrorStays: a mirror that QEMU does not end keeps no other from its end.
func TestOneMirrorStays(t *testing.T) {
	f, p := newFake(t, "10.0.0")
	status := map[string]string{"a": "running", "b": "running"}
	f.first = func(command, args string) (string, bool) {
		switch {
		case command == "query-block-jobs":
			var jobs []string
			for disk, is := range status {
				jobs = append(jobs, `{"device": `+quoted(mirrorPrefix+disk)+`, "len": 2, "offset": 1, "status": `+quoted(is)+`}`)
			}
			return "[" + strings.Join(jobs, ",") + "]", true
		case command == "block-job-cancel" && strings.Contains(args, quoted(mirrorPrefix+"a")):
			return refused, true
		case command == "block-job-cancel":
			status["b"] = "concluded"
		case command == "query-named-block-nodes":
			return "[]", true
		}
		return "{}", true
	}
	f.why = "the job is in a bad way"
	err := p.DropMirrors(t.Context())
	if err == nil || !strings.Contains(err.Error(), "disk a: ") || !strings.Contains(err.Error(), f.why) || strings.Contains(err.Error(), "disk b") {
		t.Errorf("of the one that stays: %v", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, want := range []string{"job-dismiss", "blockdev-del"} {
		if !slices.ContainsFunc(f.log, func(line string) bool { return strings.HasPrefix(line, want+" ") && strings.Contains(line, `b"`) }) {
			t.Errorf("the other was not ended: no %s in\n%s", want, strings.Join(f.log, "\n"))
		}
	}
}
