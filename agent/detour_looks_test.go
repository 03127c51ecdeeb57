package agent

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"godwit/agent/asking"
	"godwit/vm/guest"
)

// busyChannel is that of a guest in which plain TCP uses its old addresses; it counts how often it is asked.
type busyChannel struct {
	guest.Channel
	asked *int
}

func (b busyChannel) Users(context.Context, ...netip.Addr) (guest.Users, error) {
	*b.asked++
	return guest.Users{TCP: 1}, nil
}
func (busyChannel) Done() <-chan struct{} { return nil }

// TestLastingLeaseAsksSeldom: a guest is asked each second at first who uses its old addresses, and seldom where
// somebody has for hours.
func TestLastingLeaseAsksSeldom(t *testing.T) {
	a, g, d := leasing(t)
	asked := 0
	g.SpeakBy(busyChannel{asked: &asked})
	for _, c := range []struct {
		age  time.Duration
		want int
	}{{0, 5}, {3 * time.Hour, 1}} {
		*g.Asks() = asking.Asking{}
		g.Asks().LooksAgain()
		asked, d.Up = 0, time.Now().Add(-c.age)
		for range 5 {
			if err := a.lookAtVisitor(t.Context(), g, *d, false); err != nil {
				t.Fatal(err)
			}
		}
		if asked != c.want {
			t.Errorf("%v after it came it was asked %d times in 5 rounds, want %d", c.age, asked, c.want)
		}
	}
}
