// Package agenttest is, for tests, what those of package agent and of its parts share.
package agenttest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"godwit/internal/need"
	"godwit/migration"
	"godwit/netstate"
	"godwit/netstate/netns"
)

// Refused checks that err is a problem of that code and one line with all words; no
// words: that there is none.
func Refused(t *testing.T, name string, err error, code migration.Code, words ...string) {
	t.Helper()
	if len(words) == 0 {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		return
	}
	var problem *migration.Problem
	if !errors.As(err, &problem) || problem.Code != code {
		t.Errorf("%s: %v: want a problem of code %s", name, err, code)
		return
	}
	for _, w := range words {
		if !strings.Contains(problem.Text, w) {
			t.Errorf("%s: %q: want %q in it", name, problem.Text, w)
		}
	}
	if strings.Contains(problem.Text, "\n") || strings.Contains(problem.Text, "%!") {
		t.Errorf("%s: %q: want one line of words", name, problem.Text)
	}
}

// AdvertisedBy is what a router says (RFC 4861, 4.2) that is one for so many seconds.
func AdvertisedBy(router string, lifetime uint16) netstate.Advertisement {
	m := binary.BigEndian.AppendUint16([]byte{134, 0, 0, 0, 64, 0}, lifetime)
	return netstate.Advertisement{Router: netip.MustParseAddr(router), Message: append(m, make([]byte, 8)...)}
}

// Routers are the addresses of those who said it, in that order.
func Routers(all []netstate.Advertisement) []string {
	var out []string
	for _, ad := range all {
		out = append(out, ad.Router.String())
	}
	return out
}

// Bridged is a network namespace with a bridge br0, until the test ends.
func Bridged(t *testing.T) string {
	t.Helper()
	need.Root(t)
	name := fmt.Sprintf("t-bridged-%d", os.Getpid())
	if err := netns.Create(name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { netns.Delete(name) }) //nolint:errcheck // it goes with the machine
	if out, err := exec.CommandContext(t.Context(), "ip", "-n", name, "link", "add", "br0", "up", "type", "bridge").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return name
}
