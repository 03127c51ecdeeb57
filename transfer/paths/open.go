package paths

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"godwit/internal/socket"
	"godwit/transfer/pace"
	"godwit/transfer/wire"
)

// keepOpen opens a lane, again and again, until the session ends.
func (s *Sender) keepOpen(config Lane) {
	pause := backOff
	for s.ctx.Err() == nil {
		began := time.Now()
		err := s.openOnce(config)
		if s.ctx.Err() != nil {
			return
		}
		s.mu.Lock()
		over := s.bye != nil
		if !over && !config.Spare {
			p := s.path(config.Path)
			if p.Last = err.Error(); !p.Stood {
				p.Refused++
			}
		}
		s.mu.Unlock()
		if over {
			return
		}
		if time.Since(began) > 2*backOffMax+dialLimit {
			pause = backOff // it had worked
		}
		select {
		case <-time.After(max(backOff, pause-time.Since(began))): // a try that took long was pause enough
		case <-s.ctx.Done():
			return
		}
		pause = min(2*pause, backOffMax)
	}
}

// openOnce opens a lane and serves it until it ends.
func (s *Sender) openOnce(config Lane) error {
	ctx, cancel := context.WithTimeout(s.ctx, dialLimit)
	conn, err := config.Open(ctx)
	cancel()
	if err != nil {
		return err
	}
	l := &lane{path: config.Path, conn: conn, window: config.Window, spare: config.Spare}
	l.stated, l.shared = float64(config.Rate), config.Shared
	l.paced(config.Pace)
	l.expected, l.doubted = s.expects(config, time.Now())
	r := bufio.NewReaderSize(counting{conn, &l.read}, 64<<10)
	if err := s.greet(l, r); err != nil {
		socket.Abort(conn)
		return err
	}
	err = s.run(l, r)
	s.remember(l, time.Now())
	return err
}

// measured is a rate that a lane had.
type measured struct {
	rate float64 // bytes per second
	at   time.Time
}

// rateKept is for how long a lane that has ended says what the next one on its path carries.
const rateKept = 30 * time.Second

// remember notes what a lane that has ended carried, where it was full. A spare one is no measure of the others that
// share its name: it has one path, where they may have several.
func (s *Sender) remember(l *lane, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.rate > 0 && !l.spare {
		s.was[l.path] = measured{l.rate, now}
	}
}

// expects is what a lane is expected to carry, bytes per second: as configured, but no more than the one
// before it did lately, until some time. It is soon known if the path carries more again and there is enough to send.
// 0: unknown.
func (s *Sender) expects(config Lane, now time.Time) (rate float64, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rate = float64(config.Rate)
	if was, ok := s.was[config.Path]; ok && now.Sub(was.at) < rateKept && (rate == 0 || was.rate < rate) {
		return was.rate, was.at.Add(rateKept)
	}
	return rate, time.Time{}
}

// trust has a lane be expected to carry what is configured, once what the one before it carried is long ago; under mu.
func (l *lane) trust(now time.Time) {
	if !l.doubted.IsZero() && now.After(l.doubted) {
		l.expected, l.doubted = l.stated, time.Time{}
	}
}

// greet says hello and awaits the answer.
func (s *Sender) greet(l *lane, r *bufio.Reader) error {
	stop := context.AfterFunc(s.ctx, func() { socket.Abort(l.conn) })
	defer stop()
	if err := l.conn.SetDeadline(time.Now().Add(helloLimit)); err != nil {
		return err
	}
	hello := wire.Hello{Lowest: wire.Oldest, Highest: wire.Version, Migration: s.id.Migration, Key: s.id.Key, Path: l.path}
	n, err := l.conn.Write(wire.AppendHello(nil, hello))
	if err != nil {
		return err
	}
	l.wrote = uint64(n) //nolint:gosec // not negative
	kind, body, err := wire.Read(r, nil)
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("closed before a welcome")
	case err != nil:
		return err
	case kind == wire.KindBye:
		return s.heardBye(string(body))
	case kind != wire.KindWelcome:
		return fmt.Errorf("message of kind %d instead of a welcome", kind)
	}
	version, err := wire.ParseWelcome(body)
	if err != nil {
		return err
	}
	if version < wire.Oldest || version > wire.Version {
		return fmt.Errorf("welcome to version %d, which was not offered", version)
	}
	s.mu.Lock()
	s.speaks = version
	s.mu.Unlock()
	return l.conn.SetDeadline(time.Time{})
}

// paced lets a new lane send no more than rate, bytes per second; 0: as much as it can.
func (l *lane) paced(rate int64) {
	if rate > 0 {
		var limiter pace.Limiter
		limiter.Set(rate)
		l.own, l.most = limiter.Share(), float64(rate)
	}
}
