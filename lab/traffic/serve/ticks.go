package serve

import (
	"context"
	"sync"
	"time"

	"godwit/internal/sysmon"
	"godwit/lab/traffic/record"
)

// Ticks serves the port of ticks alone, for as long as the process lives, before the guest's other programs while that is
// little work. What a tick tells is that the guest is there for its clients: in an emulated guest that has just arrived
// all code is translated anew, and it would tell how long the run queue is, as the echo would.
func Ticks() error {
	setClass(before)
	l := line{set: func(c class) {
		setClass(c)
		_ = sysmon.Calm() // a change of class takes it back
	}}
	if err := serveTCP(context.Background(), record.PortTicks, func(c *conn, h record.Hello) error {
		defer l.enter(h)()
		return c.ticks(h)
	}); err != nil {
		return err
	}
	select {}
}

// mostBefore is how many ticks and answers to pings a second, of all connections, leave before all else: each takes an
// emulated guest 0.7 ms. Of pings a client may send ten a second.
const (
	mostBefore = 500
	pings      = 10
)

// line is who is served before other programs: everybody, or nobody.
type line struct {
	mu   sync.Mutex
	rate int64 // a second, of all connections
	set  func(class)
}

// enter counts a client until leave is called.
func (l *line) enter(h record.Hello) (leave func()) {
	rate := int64(pings + time.Second/interval(h)) // one that is rarer than its pings is these
	l.change(rate)
	return func() { l.change(-rate) }
}

func (l *line) change(by int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.rate > mostBefore
	l.rate += by
	switch now := l.rate > mostBefore; {
	case now && !was:
		l.set(among)
	case was && !now:
		l.set(before)
	}
}
