package addresses

import (
	"context"
	"net/netip"
	"testing"
	"time"
)

// TestGuard: an address that somebody takes during the copy is known at its end,
// one that was given up again is not, and stopping takes no time.
func TestGuard(t *testing.T) {
	taken, freed, free := netip.MustParseAddr("10.2.1.10"), netip.MustParseAddr("10.2.1.11"), netip.MustParseAddr("fd00:2:1::10")
	asked := make(chan netip.Addr, 100)
	looks := 0
	g := Watch(t.Context(), []netip.Addr{taken, freed, free}, time.Millisecond, func(_ context.Context, addr netip.Addr) (string, bool) {
		defer func() {
			select {
			case asked <- addr:
			default:
			}
		}()
		if addr == freed {
			looks++
		}
		return "52:54:00:00:00:01", addr == taken || addr == freed && looks == 1
	})
	for range 9 {
		<-asked
	}
	got := g.Stop()
	if len(got) != 1 || got[taken] != "52:54:00:00:00:01" {
		t.Errorf("taken: %v, want %s alone", got, taken)
	}
	began := make(chan struct{})
	slow := Watch(t.Context(), []netip.Addr{taken}, time.Millisecond, func(ctx context.Context, _ netip.Addr) (string, bool) {
		close(began)
		<-ctx.Done()
		return "", false
	})
	<-began
	start := time.Now()
	if got := slow.Stop(); len(got) != 0 || time.Since(start) > 20*time.Second {
		t.Errorf("stopped in %v with %v", time.Since(start), got)
	}
	if (*Guard)(nil).Stop() != nil {
		t.Error("no guard knows something")
	}
}
