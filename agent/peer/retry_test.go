package peer

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestCallsAskAgainSoon: what is lost of a call, which may be a guest's release, is sent again sooner than the kernel would
// by itself.
func TestCallsAskAgainSoon(t *testing.T) {
	ids := fleet(t, "paris", "rome")
	port := freePort(t)
	serve(t, ids["rome"], port, echo(), nil)
	link := NewLink(ids["paris"], "rome", port, []Path{{Name: "lo-lo", Local: loopback, Remote: loopback}})
	t.Cleanup(link.Close)
	conn, err := link.dialAny(within(t, 20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	err = control(conn, func(fd int) error {
		us, err := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_RTO_MIN_US)
		if d := time.Duration(us) * time.Microsecond; err == nil && (d < leastRetry || d >= 2*leastRetry) { // it counts in jiffies
			t.Errorf("after %v and the round trip", d)
		}
		return err
	})
	if errors.Is(err, unix.ENOPROTOOPT) {
		t.Skip("needs Linux 6.15")
	}
	if err != nil {
		t.Fatal(err)
	}
}
