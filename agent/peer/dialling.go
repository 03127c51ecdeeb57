package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"
)

// dialling is a connection for calls that is being made. What a call does not wait for any
// more is the next one's: over a path that has just come back a handshake takes as long as
// many a limit of a call, and would never be over if each began it anew.
type dialling struct {
	done chan struct{}
	conn net.Conn // when done
	err  error
}

// leftFor is how long one that is done waits for the next call.
const leftFor = time.Second

// dialCall dials for a call, or goes on with what an earlier one has left.
func (l *Link) dialCall(ctx context.Context) (net.Conn, error) {
	l.mu.Lock()
	d := l.left
	l.left = nil
	l.mu.Unlock()
	if d == nil {
		d = l.dialling()
	}
	select {
	case <-d.done:
		if d.err == nil {
			l.mu.Lock()
			l.last = d.conn
			l.mu.Unlock()
		}
		return d.conn, d.err
	case <-ctx.Done():
		l.leave(d)
		return nil, ctx.Err()
	}
}

// Trip is the shortest round trip of the connection that was last dialled for a call, which the next is likely to
// take; 0: not known.
func (l *Link) Trip() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == nil {
		return 0
	}
	return shortestTrip(l.last)
}

// dialling begins to dial for a call.
func (l *Link) dialling() *dialling {
	d := &dialling{done: make(chan struct{})}
	go func() {
		defer close(d.done)
		d.conn, d.err = l.dialAny(l.life)
	}()
	return d
}

// Ahead begins to dial for a call that will come soon: it need not wait for a handshake then.
func (l *Link) Ahead() { l.leave(l.dialling()) }

// leave keeps d for the next call, for a while; of two the earlier.
func (l *Link) leave(d *dialling) {
	l.mu.Lock()
	one := l.left == nil
	if one {
		l.left = d
	}
	l.mu.Unlock()
	if !one {
		go d.drop()
		return
	}
	go func() {
		<-d.done
		select {
		case <-time.After(leftFor):
		case <-l.life.Done():
		}
		l.mu.Lock()
		mine := l.left == d
		if mine {
			l.left = nil
		}
		l.mu.Unlock()
		if mine {
			d.drop()
		}
	}()
}

// drop closes what nobody wants, when it is done.
func (d *dialling) drop() {
	if <-d.done; d.conn != nil {
		d.conn.Close()
	}
}

// disbelieves says whether err is that this end does not believe the other's certificate.
func disbelieves(err error) bool {
	var certificate *tls.CertificateVerificationError
	return errors.As(err, &certificate)
}

// astray is why no path answered where some lead to who is not believed, and others to nobody yet: the first may lead to
// another host, such as one of a private subnet that both sites have, and the host that is meant be at the others soon.
type astray struct{ stranger, nobody error }

func (a astray) Error() string { return fmt.Sprintf("%v; %v", a.stranger, a.nobody) }

func (a astray) Unwrap() []error { return []error{a.stranger, a.nobody} }
