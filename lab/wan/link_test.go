package wan

import (
	"math"
	"testing"
	"time"
)

func TestLinkCheck(t *testing.T) {
	for _, c := range []struct {
		link Link
		ok   bool
	}{
		{Link{}, true},
		{Link{Rate: 350e6, Delay: 10 * time.Millisecond, Jitter: time.Millisecond, Loss: 1, Queue: 1, MTU: 9000, Cut: "ab"}, true},
		{Link{Rate: -1}, false},
		{Link{Rate: 200e9}, false},
		{Link{Delay: -1}, false},
		{Link{Delay: time.Hour}, false},
		{Link{Jitter: 1}, false},
		{Link{Loss: 1.1}, false},
		{Link{Loss: math.NaN()}, false},
		{Link{Queue: -1}, false},
		{Link{MTU: 100}, false},
		{Link{Cut: "all"}, false},
	} {
		if err := c.link.Check(); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c.link, err)
		}
	}
}

func TestQueueBytes(t *testing.T) {
	for _, c := range []struct {
		link Link
		want int
	}{
		{Link{}, 64 << 10},
		{Link{Rate: 1e6, Delay: time.Millisecond}, 64 << 10},
		{Link{Rate: 100e6, Delay: 10 * time.Millisecond}, 250_000},
		{Link{Rate: 100e6, Delay: 10 * time.Millisecond, Queue: 5000}, 5000},
	} {
		if got := c.link.QueueBytes(); got != c.want {
			t.Errorf("%+v: %d, want %d", c.link, got, c.want)
		}
	}
}
