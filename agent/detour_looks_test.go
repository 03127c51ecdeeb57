package agent

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"godwit/agent/detour"
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

// TestLastingLeaseAsksSeldom: a guest is asked each second at first who uses its old addresses, and seldom where somebody has for hours.
func TestLastingLeaseAsksSeldom(t *testing.T) {
	a, g, d := leasing(t)
	asked := 0
	g.speakBy(busyChannel{asked: &asked})
	g.looked = time.Now()
	for _, c := range []struct {
		age  time.Duration
		want int
	}{{0, 5}, {3 * time.Hour, 1}} {
		asked, g.needs, d.Up = 0, nil, time.Now().Add(-c.age)
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

// TestListsWhileItIsKnown: however long a lease lasts and how much it carries, the guest's connections are listed before its kernel has
// forgotten which have ended, 10 s after a reset. A look may take a while.
func TestListsWhileItIsKnown(t *testing.T) {
	const most = 9 * time.Second
	for _, carried := range []int{1, longList, longList + 1, 100000} {
		for _, work := range []time.Duration{0, time.Millisecond, 30 * time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				g, d, listed, longest := &Guest{}, detour.Detour{ID: "m-00000001", Up: time.Now()}, time.Now(), time.Duration(0)
				for range 3600 {
					if g.asksAgain(d) {
						g.stillNeeds(d)
						if g.listsAgain(d, carried) {
							longest, listed = max(longest, time.Since(listed)), time.Now()
						}
					}
					time.Sleep(time.Second + work)
				}
				if longest = max(longest, time.Since(listed)); longest > most {
					t.Errorf("%d connections, a look takes %v: they were not listed for %v, want %v at most", carried, work, longest, most)
				}
			})
		}
	}
}
