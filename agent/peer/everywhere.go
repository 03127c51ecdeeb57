package peer

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"godwit/migration"
)

// spreadFor is how long what a Spread has dialled waits for its call.
const spreadFor = 10 * time.Second

// Spread is what was dialled over every path of a link, for one CallEverywhere that will come soon: that of who asked
// for it, as others call the same host. A nil one has nothing.
type Spread struct {
	mu  sync.Mutex
	all []*dialling // until they are taken
}

// Spread begins to dial over every path. With one path there is nothing to spread.
func (l *Link) Spread() *Spread {
	s := &Spread{}
	if len(l.paths) < 2 {
		return s
	}
	for _, p := range l.paths {
		d := &dialling{done: make(chan struct{})}
		s.all = append(s.all, d)
		go func() {
			defer close(d.done)
			d.conn, d.err = l.dial(l.life, p, "http/1.1", controlSilence, 0)
		}()
	}
	forget := context.AfterFunc(l.life, s.drop)
	time.AfterFunc(spreadFor, func() { forget(); s.drop() })
	return s
}

// take is what was dialled and nobody has used yet.
func (s *Spread) take() []*dialling {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.all
	s.all = nil
	return all
}

// drop closes what nobody has used.
func (s *Spread) drop() { dropAll(s.take()) }

func dropAll(all []*dialling) {
	for _, d := range all {
		go d.drop()
	}
}

// CallEverywhere is Call, and beside it the same over each path that s has dialled, as soon as that answers: the first
// answer counts. A path that is cut or loses the request, or is longer than another, costs nothing then.
func (l *Link) CallEverywhere(ctx context.Context, s *Spread, method, path string, request, answer any) error {
	spread := s.take()
	if len(spread) == 0 {
		return l.Call(ctx, method, path, request, answer)
	}
	defer dropAll(spread) // after what is cancelled below
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	said := make(chan reply, len(spread)+1)
	ask := func(by func(into any) error, last bool) {
		r := reply{last: last}
		var into any
		if answer != nil {
			into = &r.data
		}
		r.err = by(into)
		said <- r
	}
	go ask(func(into any) error { return l.Call(ctx, method, path, request, into) }, true)
	for _, d := range spread {
		go ask(func(into any) error { return l.over(ctx, d, method, path, request, into) }, false)
	}
	for range len(spread) + 1 {
		r := <-said
		var problem *migration.Problem
		switch {
		case r.err == nil && answer == nil:
			return nil
		case r.err == nil:
			return json.Unmarshal(r.data, answer)
		case errors.As(r.err, &problem), r.last:
			return r.err
		}
	}
	return ctx.Err() // not reached: one of them was the last
}

// reply is what came of a call over one way; last: Call's, which has tried all.
type reply struct {
	data json.RawMessage
	err  error
	last bool
}

// over calls once over a connection that was dialled for it.
func (l *Link) over(ctx context.Context, d *dialling, method, path string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	select {
	case <-d.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	if d.err != nil {
		return d.err
	}
	once := &http.Client{Transport: &http.Transport{
		DialTLSContext:    func(context.Context, string, string) (net.Conn, error) { return d.conn, nil },
		DisableKeepAlives: true,
	}}
	return l.onceBy(ctx, once, method, path, body, answer)
}
