package paths

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"godwit/transfer/wire"
)

// way is a Lane and the connections that share it.
type way struct {
	Lane
	parted sync.Once
	parts  atomic.Int64 // how many; 0: not known yet
}

// onePart is how much one connection has on its way before another beside it pays: where
// one loses a packet it sends half as much for some round trips, and its way is long then.
// Several begin faster, too.
const onePart = 1 << 20

// connections is how many share a way of rate bytes per second and that round trip.
func (w *way) connections(rtt time.Duration) int64 {
	fits := float64(w.Rate) * rtt.Seconds()
	return int64(min(max(1, math.Ceil(fits/onePart)), float64(max(1, w.Most))))
}

// part decides, by the round trip of its first connection, how many share a way, and opens
// the others.
func (s *Sender) part(w *way, rtt time.Duration) {
	w.parted.Do(func() {
		n := w.connections(rtt)
		w.parts.Store(n)
		for range n - 1 {
			s.running.Go(func() { s.keepOpen(w) })
		}
	})
}

// keepOpen opens a connection of a way, again and again, until the session ends.
func (s *Sender) keepOpen(config *way) {
	pause := backOff
	for s.ctx.Err() == nil {
		began := time.Now()
		err := s.openOnce(config)
		if s.ctx.Err() != nil {
			return
		}
		s.mu.Lock()
		over := s.bye != nil
		if !over {
			s.path(config.Path).Last = err.Error()
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
func (s *Sender) openOnce(config *way) error {
	ctx, cancel := context.WithTimeout(s.ctx, dialLimit)
	conn, err := config.Open(ctx)
	cancel()
	if err != nil {
		return err
	}
	l := &lane{path: config.Path, conn: conn}
	r := bufio.NewReaderSize(counting{conn, &l.read}, 64<<10)
	greeted := time.Now()
	if err := s.greet(l, r); err != nil {
		abort(conn)
		return err
	}
	s.part(config, time.Since(greeted))
	n := config.parts.Load()
	l.expected = float64(config.Rate / n)
	if n > 1 {
		pacing(conn, config.Rate/n)
	}
	return s.run(l, r)
}

// greet says hello and awaits the answer.
func (s *Sender) greet(l *lane, r *bufio.Reader) error {
	stop := context.AfterFunc(s.ctx, func() { abort(l.conn) })
	defer stop()
	if err := l.conn.SetDeadline(time.Now().Add(helloLimit)); err != nil {
		return err
	}
	hello := wire.Hello{Lowest: wire.Oldest, Highest: wire.Version, Migration: s.id.Migration, Key: s.id.Key, Path: l.path}
	if _, err := l.conn.Write(wire.AppendHello(nil, hello)); err != nil {
		return err
	}
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
