package netstate_test

import (
	"regexp"
	"strings"
	"testing"

	"godwit/netstate"

	"github.com/google/go-cmp/cmp"
)

// forwards6 is what comes with IPv6 forwarding, whose sysctl stays.
var forwards6 = regexp.MustCompile(`anycast .*\n|33:33.*\n`)

// TestUndoAfterFlush: where somebody took the notes away, the state that is known to have stood goes all
// the same. Sysctls stay: what they were was in the notes.
func TestUndoAfterFlush(t *testing.T) {
	w := newWorld(t, "wireguard")
	w.Run("hb", "nft", "add table inet other")
	w.set("hb", abroad())
	w.Do("hb", func() error { return netstate.Undo(abroad()) }) // with its notes it is Clear
	before := w.dump("hb")
	w.set("hb", abroad())
	w.Run("hb", "nft", "delete table bridge godwit; delete table inet godwit")
	w.Do("hb", func() error { return netstate.Undo(abroad()) })
	cut := func(s string) []string {
		s, sysctls, _ := strings.Cut(s, "\nipv4/conf/all/accept_local")
		if sysctls == "" {
			t.Fatal("no sysctls seen")
		}
		return strings.Split(forwards6.ReplaceAllString(s+"\n", ""), "\n")
	}
	if diff := cmp.Diff(cut(before), cut(w.dump("hb"))); diff != "" {
		t.Error(diff)
	}
	for range 2 {
		w.Do("hb", func() error { return netstate.Undo(abroad()) })
	}
}
