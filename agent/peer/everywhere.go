package peer

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"time"

	"godwit/migration"
)

// spreadFor is how long what Spread has dialled waits for its call.
const spreadFor = 10 * time.Second

// Spread begins to dial over every path, for a CallEverywhere that will come soon. With one path there is nothing to spread.
func (l *Link) Spread() {
	if len(l.paths) < 2 {
		return
	}
	var spread []*dialling
	for _, p := range l.paths {
		d := &dialling{done: make(chan struct{})}
		spread = append(spread, d)
		go func() {
			defer close(d.done)
			d.conn, d.err = l.dial(l.life, p, "http/1.1", controlSilence, 0)
		}()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	dropAll(l.spread)
	l.spread = spread
	time.AfterFunc(spreadFor, func() { l.gather(spread[0]) })
}

// gather drops what Spread made and nobody has used, if that began with first.
func (l *Link) gather(first *dialling) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.spread) > 0 && l.spread[0] == first {
		dropAll(l.spread)
		l.spread = nil
	}
}

func dropAll(all []*dialling) {
	for _, d := range all {
		go d.drop()
	}
}

// CallEverywhere is Call, and beside it the same over each path that Spread has dialled, as soon as that answers: the first answer counts. A
// path that is cut or loses the request, or is longer than another, costs nothing then.
func (l *Link) CallEverywhere(ctx context.Context, method, path string, request, answer any) error {
	l.mu.Lock()
	spread := l.spread
	l.spread = nil
	l.mu.Unlock()
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
