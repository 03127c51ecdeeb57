package lab

import (
	"testing"

	"godwit/agent/record"
	"godwit/lab/report"
)

// TestPostCopyThatNobodyTells: how many pages followed a guest is told once the last has come, not as none before.
func TestPostCopyThatNobodyTells(t *testing.T) {
	for done, want := range map[int64]*report.PostCopy{0: nil, 3e9: {Why: "asked for", Pages: 5}} {
		rep := &record.Report{Requested: 1e9, Resumed: 2e9, MemoryDone: done, PostCopy: &record.PostCopy{Why: "asked for", Pages: 5}}
		var out report.Migration
		fillTold(&out, &move{report: rep}, rep)
		if (out.PostCopy == nil) != (want == nil) || want != nil && *out.PostCopy != *want {
			t.Errorf("memory there at %d: %+v, want %+v", done, out.PostCopy, want)
		}
	}
}
