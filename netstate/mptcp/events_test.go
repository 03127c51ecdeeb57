package mptcp

import (
	"context"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// TestEventsOfAKind: who asks for some kinds alone is told of them, and woken up by no other.
func TestEventsOfAKind(t *testing.T) {
	loopback(t)
	wanted, err := Events(t.Context(), SubClosed, Established)
	if err != nil {
		t.Fatal(err)
	}
	all, err := Events(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	connect(t, "127.0.0.1", true)
	next := func(from <-chan Event) Event {
		select {
		case e := <-from:
			return e
		case <-time.After(5 * time.Second):
			t.Fatal("nothing happened")
		}
		return Event{}
	}
	seen := map[EventKind]int{}
	for seen[Established] < 2 { // of either end
		seen[next(all).Kind]++
	}
	if seen[Created] == 0 {
		t.Errorf("seen: %v", seen)
	}
	for range 2 {
		if e := next(wanted); e.Kind != Established || e.Token == 0 {
			t.Errorf("%v of a kind that nobody asked for", e)
		}
	}
}

// TestWithdrawnAddress: when a peer withdraws an address of its own is told, of the side that hears of it.
func TestWithdrawnAddress(t *testing.T) {
	loopback(t, "10.7.3.1/32", "10.7.3.9/32")
	if err := SetLimits(8, 8); err != nil {
		t.Fatal(err)
	}
	_, server := connect(t, "10.7.3.1", true)
	near, ok := side(t, portOf(t, server.LocalAddr()))
	if !ok {
		t.Fatal("the server has no connection")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	events, err := Events(ctx, SubEstablished, Removed)
	if err != nil {
		t.Fatal(err)
	}
	other := Endpoint{ID: 9, Addr: netip.MustParseAddr("10.7.3.9"), Flags: FlagSubflow}
	if err := AddEndpoint(other); err != nil {
		t.Fatal(err)
	}
	waitEvent(t, events, func(e Event) bool { return e.Kind == SubEstablished && e.Token == near.Token })
	if err := DelEndpoint(other.ID, other.Addr); err != nil {
		t.Fatal(err)
	}
	waitEvent(t, events, func(e Event) bool { return e.Kind == Removed && e.Token == near.Token })
}

// queue is a socket that the kernel would tell when there is something to read, and how often it did.
type queue struct {
	syscall.RawConn
	fd    int
	wakes atomic.Int64
}

func (q *queue) Read(f func(uintptr) bool) error {
	for !f(uintptr(q.fd)) {
		var one [1]byte
		for {
			_, _, err := unix.Recvfrom(q.fd, one[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
			if err == nil {
				break
			}
			time.Sleep(100 * time.Microsecond)
		}
		q.wakes.Add(1)
	}
	return nil
}

// TestCrowdsByBunches: what a crowd does wakes who listens a hundred times a second, not for each of its events; what
// happens alone is told at once.
func TestCrowdsByBunches(t *testing.T) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(ends[0])
	defer unix.Close(ends[1])
	inner, err := genetlink.Message{Header: genetlink.Header{Command: uint8(SubEstablished)}}.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	length := unix.NLMSG_HDRLEN + len(inner)
	message, err := netlink.Message{Header: netlink.Header{Length: uint32(length)}, Data: inner}.MarshalBinary() //nolint:gosec // a few
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		q := &queue{fd: ends[0]}
		p := &pump{raw: q, events: make(chan Event, 2000), buffer: make([]byte, messageBuffer)}
		send := func(n int, every time.Duration) {
			for range n {
				if _, err := unix.Write(ends[1], message); err != nil {
					t.Fatal(err)
				}
				time.Sleep(every)
			}
		}
		go p.run(t.Context())
		send(1000, time.Millisecond)
		time.Sleep(time.Second)
		if len(p.events) != 1000 || q.wakes.Load() > 250 {
			t.Errorf("%d of 1000 events, woken %d times", len(p.events), q.wakes.Load())
		}
		for len(p.events) > 0 {
			<-p.events
		}
		for range 50 {
			send(1, time.Millisecond)
			if len(p.events) != 1 {
				t.Error("an event that came alone was not told at once")
			}
			<-p.events
			time.Sleep(20 * time.Millisecond)
		}
		if _, err := unix.Write(ends[1], []byte{0}); err != nil { // what is no event ends it
			t.Fatal(err)
		}
		for range p.events {
			t.Error("an event of nothing")
		}
	})
}
