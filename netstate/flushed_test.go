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

// TestReplaceAfterFlush: where somebody took the notes away, what is known to have stood and is wanted no more goes, and
// what is wanted still stands.
func TestReplaceAfterFlush(t *testing.T) {
	w := newWorld(t, "wireguard")
	direct := abroad()
	for i := range direct.Visiting {
		direct.Visiting[i].Direct = true
	}
	w.set("hb", direct)
	leads := func() string {
		return w.Run("hb", "sh", "-c", "for f in -4 -6; do ip $f rule; ip $f route show table all proto 0x67; ip $f neigh show proxy; done; nft list chain bridge godwit in-web")
	}
	want := leads()
	for _, lost := range []string{"list ruleset", "flush ruleset"} {
		w.set("hb", abroad())
		w.Run("hb", "nft", lost)
		w.Do("hb", func() error { return netstate.Replace(abroad(), direct) })
		if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(leads(), "\n")); diff != "" {
			t.Errorf("%s: %s", lost, diff)
		}
		w.stands("hb", direct, true)
	}
}

// TestReplaceAfterABoot: what is known to have stood as the host was off has the bridge keep its MAC, as the first guest
// does: it took that of a tap with a lower one, which went with that.
func TestReplaceAfterABoot(t *testing.T) {
	w := newWorld(t, "wireguard")
	w.Do("hb", func() error { return netstate.Replace(abroad(), abroad()) })
	mac := func() string { return w.Run("hb", "ip", "-br", "link", "show", "br-guest") }
	before := mac()
	w.IP("hb", "link add low address 00:00:00:00:00:01 type veth peer name low2\nlink set low master br-guest\nlink set low up")
	if after := mac(); after != before {
		t.Errorf("the bridge was %s and is %s", before, after)
	}
}

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
