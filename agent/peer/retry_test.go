package peer

import (
	"context"
	"errors"
	"net/http"
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

// TestCallThatNobodyWantsAnyMore: its end says nothing of connections, and another call's is still there for the next.
func TestCallThatNobodyWantsAnyMore(t *testing.T) {
	ids := fleet(t, "paris", "rome")
	port := freePort(t)
	held := make(chan struct{})
	serve(t, ids["rome"], port, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/held" {
			close(held)
			<-r.Context().Done()
		}
		Answer(w, r.RemoteAddr, nil)
	}), nil)
	link := linkTo(t, ids["paris"], "rome", port)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- link.Call(ctx, http.MethodGet, "/held", nil, nil) }()
	<-held
	var from [2]string
	for i := range from {
		if err := link.Call(t.Context(), http.MethodGet, "/from", nil, &from[i]); err != nil {
			t.Fatal(err)
		}
		if cancel(); i == 0 {
			if err := <-ended; !errors.As(err, new(*Unreachable)) {
				t.Error(err)
			}
		}
	}
	if from[0] != from[1] {
		t.Errorf("calls from %q", from)
	}
}
