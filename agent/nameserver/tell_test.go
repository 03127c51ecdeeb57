package nameserver_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"godwit/agent/nameserver"
	"godwit/agent/nameserver/nametest"
)

// soon has a server be asked so many times, one soon after the other, until the test ends.
func soon(t *testing.T, times int) {
	was, after := *nameserver.TryAfter, make([]time.Duration, times)
	t.Cleanup(func() { *nameserver.TryAfter = was })
	for i := range after[1:] {
		after[i+1] = time.Millisecond
	}
	*nameserver.TryAfter = after
}

// TestTell: a server that refuses is asked again, so many times; each way it
// ends is one note.
func TestTell(t *testing.T) {
	at := []netip.Addr{netip.MustParseAddr("10.2.1.10"), netip.MustParseAddr("fd00:2:1::10")}
	soon(t, 3)
	for _, c := range []struct {
		refuse      int
		first, last string
		taken       int
	}{
		{0, "", "name service: web.example.test. is 10.2.1.10, fd00:2:1::10 now", 2},
		{2, "refused (REFUSED)", "is 10.2.1.10, fd00:2:1::10 now", 2},
		{3, "trying again", "given up after 3 tries: update web.example.test.", 0},
	} {
		server, taken := nametest.Server(t, c.refuse)
		first := ""
		last := server.Tell(t.Context(), "web", at, func() bool { return true }, func(text string) { first += text })
		if got := taken(); len(got) != c.taken {
			t.Errorf("refused %d times: the server took %v, want %d records", c.refuse, got, c.taken)
		}
		if !strings.Contains(first, c.first) || (first == "") != (c.first == "") || !strings.Contains(last, c.last) || strings.Contains(last, "\n") {
			t.Errorf("refused %d times: said %q, then %q", c.refuse, first, last)
		}
	}
}

// TestTellOfAGuestThatWentOn: a server that refused is not told, later on, of addresses that the guest has left.
func TestTellOfAGuestThatWentOn(t *testing.T) {
	server, taken := nametest.Server(t, 1)
	soon(t, 2)
	here := true
	said := server.Tell(t.Context(), "web", []netip.Addr{netip.MustParseAddr("10.2.1.10")}, func() bool { return here }, func(string) { here = false })
	if got := taken(); len(got) > 0 || !strings.Contains(said, "has left 10.2.1.10") {
		t.Errorf("%q, told %v", said, got)
	}
}
