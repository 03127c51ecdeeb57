// Package lasting is listeners that go on: a connection that cannot be taken, as the host has no descriptor or no
// memory left for it, is no reason to take none when there is some again; nor is an address that comes later a reason not
// to listen at it (Early). A process that lives for months, and is asked
// by others, needs that.
package lasting

import (
	"errors"
	"net"
	"time"
)

// Cure is what to do where connections cannot be taken for long.
const Cure = "where too many files are open, raise LimitNOFILE of the agent's unit, or fs.file-max of the host"

const (
	acceptAgain = 100 * time.Millisecond
	sayAgain    = time.Minute
)

// Listener is ln, whose Accept fails only when it was closed, and else tries again, ten times a second. tell is told
// why, once a minute at most; it may be nil.
func Listener(ln net.Listener, tell func(error)) net.Listener {
	return &listener{Listener: ln, tell: tell}
}

type listener struct {
	net.Listener
	tell func(error)
	said time.Time // of the one who accepts
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err == nil || errors.Is(err, net.ErrClosed) {
			return conn, err
		}
		if now := time.Now(); l.tell != nil && (l.said.IsZero() || now.Sub(l.said) >= sayAgain) {
			l.said = now
			l.tell(err)
		}
		time.Sleep(acceptAgain)
	}
}
