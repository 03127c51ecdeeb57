package qemu

import (
	"strings"
	"testing"

	"godwit/vm"
)

// TestWordsOfQEMUAreShort: what a QEMU says, such as one that its guest has taken over, is shown to people, written
// into journals and told to other hosts: a line of each at most.
func TestWordsOfQEMUAreShort(t *testing.T) {
	f, p := newFake(t, "10.0.2")
	long := strings.Repeat("no room\x1b]0;\n", 20_000)
	f.set(func() { f.status, f.run, f.why = "failed", long, long })
	status, err := p.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	progress, err := p.Progress(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f.set(func() { f.over = true })
	refusal := p.qmp.DoOOB(t.Context(), "yank", nil, nil)
	if refusal == nil {
		t.Fatal("not refused")
	}
	for name, word := range map[string]string{
		"status": string(status), "error of a migration": progress.Error, "refusal": refusal.Error(), "end": ended(vm.Progress{Status: vm.Failed, Error: progress.Error}).Error(),
	} {
		if len(word) == 0 || len(word) > 3000 || strings.ContainsAny(word, "\x1b\n") {
			t.Errorf("%s: %d bytes: %.60q", name, len(word), word)
		}
	}
}
