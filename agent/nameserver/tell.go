package nameserver

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"godwit/agent/limits"
	"godwit/internal/clock"
)

// tryAfter are the pauses before each try to tell the name server where a guest is
// now. A server that refuses may be mended meanwhile, so that is tried again too.
var tryAfter = []time.Duration{0, time.Second, 4 * time.Second, 15 * time.Second, time.Minute}

// Tell tries after each of tryAfter until the server has taken the addresses, for as long as
// the guest still has them: the name of one that has gone on is its next host's to tell. It
// returns what a person should know of how it ended, "" where ctx ended first; said is told of the first
// failure when it happens.
func (c Config) Tell(ctx context.Context, guest string, addrs []netip.Addr, still func() bool, said func(string)) string {
	var last error
	for i, wait := range tryAfter {
		if !clock.Sleep(ctx, wait) {
			return ""
		}
		if i > 0 && !still() {
			return fmt.Sprintf("name service: not told, and the guest has left %s since: %v", join(addrs), last)
		}
		last = limits.NameTry.Do(ctx, func(ctx context.Context) error { return c.Update(ctx, guest, addrs) })
		if last == nil {
			return fmt.Sprintf("name service: %s is %s now", c.NameOf(guest), join(addrs))
		}
		if i == 0 && len(tryAfter) > 1 {
			said(fmt.Sprintf("name service: %v; trying again", last))
		}
	}
	return fmt.Sprintf("name service: given up after %d tries: %v; set %s to %s by hand", len(tryAfter), last, c.NameOf(guest), join(addrs))
}

func join(addrs []netip.Addr) string {
	var out []string
	for _, addr := range addrs {
		out = append(out, addr.String())
	}
	return strings.Join(out, ", ")
}
