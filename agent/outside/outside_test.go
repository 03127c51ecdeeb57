package outside

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"godwit/netstate/dhcp"
)

// TestTakenSaysHowFar: of a guest that does not take its address, the error says what it
// did instead.
func TestTakenSaysHowFar(t *testing.T) {
	o := New(Config{Bridge: "none"})
	for _, c := range []struct {
		words []dhcp.Word
		want  string
	}{
		{nil, "asks for no address"},
		{[]dhcp.Word{dhcp.Asks, dhcp.Asks}, "took no answer"},
		{[]dhcp.Word{dhcp.Asks, dhcp.Other}, "another DHCP server"},
		{[]dhcp.Word{dhcp.Asks, dhcp.Takes}, "does not answer there"},
		{[]dhcp.Word{dhcp.Asks, dhcp.Takes, dhcp.Declines}, "somebody else has it"},
	} {
		words := make(chan dhcp.Word, 9)
		for _, w := range c.words {
			words <- w
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			for len(words) > 0 {
				time.Sleep(time.Millisecond)
			}
			time.Sleep(10 * time.Millisecond)
			cancel()
		}()
		err := o.taken(ctx, "52:54:00:00:01:0b", netip.MustParseAddr("10.2.1.10"), words)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "52:54:00:00:01:0b") {
			t.Errorf("%v: %v, want %q", c.words, err, c.want)
		}
	}
}
