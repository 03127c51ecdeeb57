package netstate_test

import (
	"sync/atomic"
	"testing"
	"time"

	"godwit/netstate"
	"godwit/netstate/internal/nettest"
	"godwit/netstate/netns"
)

// TestRoutersWithoutEnd: who advertises without end is heard, so often and no more.
func TestRoutersWithoutEnd(t *testing.T) {
	n := nettest.New(t, "h", "r")
	n.Wire("h", "lan0", "r", "up0")
	var heard atomic.Int64
	var watch *netstate.RouterWatch
	n.Do("h", func() (err error) {
		watch, err = netstate.WatchRouters("lan0", func(netstate.Advertisement) { heard.Add(1) })
		return err
	})
	defer watch.Close()
	nettest.Eventually(t, "a router is heard", 5*time.Second, func() bool {
		return netns.Do(n.Name("r"), func() error { return advertise("up0") }) == nil && heard.Load() > 0
	})
	n.Do("r", func() error {
		sent, begun, before := 0, time.Now(), heard.Load()
		for ; time.Since(begun) < 300*time.Millisecond; sent++ {
			if err := advertise("up0"); err != nil {
				return err
			}
		}
		nettest.Eventually(t, "one of many is heard", 5*time.Second, func() bool { return heard.Load() > before })
		if n, took := heard.Load()-before, time.Since(begun); n > took.Milliseconds()/5+2 {
			t.Errorf("%d of %d advertisements were looked at in %v", n, sent, took)
		}
		return nil
	})
}
