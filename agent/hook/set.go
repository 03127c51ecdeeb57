package hook

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"godwit/migration"
)

// Set is all hooks of one host. It is safe for use by many.
type Set struct {
	config Config
	log    *slog.Logger
	note   func(c Call, text string)
	count  func(event migration.EventName, result Result)
	web    []hook // in the order of config.HTTP
	client *http.Client

	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
	told   chan Call

	mu     sync.Mutex
	queues map[string]*queue
	subs   []*Subscriber
	next   uint64 // number of the next delivery
}

const (
	// toldAhead bounds the events that wait to be given to the hooks' queues.
	toldAhead = 256
	// queueMost bounds the events that wait for one hook.
	queueMost = 64
	// lateAfter is a wait for one's turn that is worth a note.
	lateAfter = time.Second
)

// New begins to serve; config was checked. note hears what a person should know of a
// hook that failed, was late or was not called, count the result of each call; neither may block.
func New(config Config, log *slog.Logger, note func(c Call, text string), count func(migration.EventName, Result)) *Set {
	s := &Set{config: config, log: log, note: note, count: count, told: make(chan Call, toldAhead), queues: map[string]*queue{}, client: newClient()}
	for _, h := range config.HTTP {
		s.web = append(s.web, s.webHook(h))
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.work.Go(s.dispatch)
	return s
}

// Close kills the hooks that run, forgets those that wait, and returns when none runs.
func (s *Set) Close() {
	s.cancel()
	s.mu.Lock()
	subs := s.subs
	s.mu.Unlock()
	for _, sub := range subs {
		sub.Close()
	}
	s.work.Wait()
	s.client.CloseIdleConnections()
}

// Tell tells the hooks of an informative event. It never waits: what cannot be queued
// is noted and not told.
func (s *Set) Tell(c Call) {
	select {
	case s.told <- c:
	default:
		s.count(c.Event, Dropped)
		s.note(c, fmt.Sprintf("%s was told to no hook: too many events wait", c.Event))
	}
}

// dispatch puts each event into the queues of its hooks.
func (s *Set) dispatch() {
	for {
		select {
		case c := <-s.told:
			for _, h := range s.of(c.Event) {
				s.enqueue(h, c)
			}
		case <-s.ctx.Done():
			return
		}
	}
}

// queue is what waits for one hook; its goroutine lives while there is something.
type queue struct{ waiting []queued }

type queued struct {
	hook  hook
	call  Call
	since time.Time
}

func (s *Set) enqueue(h hook, c Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, runs := s.queues[h.name]
	if !runs {
		q = &queue{}
		s.queues[h.name] = q
	}
	if len(q.waiting) >= queueMost {
		s.count(c.Event, Dropped)
		s.note(c, fmt.Sprintf("hook %s was not told of %s: %d events wait for it already", h.name, c.Event, queueMost))
		return
	}
	q.waiting = append(q.waiting, queued{h, c, time.Now()})
	if !runs {
		s.work.Go(func() { s.serve(h.name, q) })
	}
}

// serve calls a hook for each event in its queue, until none is left.
func (s *Set) serve(name string, q *queue) {
	for {
		s.mu.Lock()
		if len(q.waiting) == 0 || s.ctx.Err() != nil {
			delete(s.queues, name)
			s.mu.Unlock()
			return
		}
		one := q.waiting[0]
		q.waiting = q.waiting[1:]
		s.mu.Unlock()
		if late := time.Since(one.since); late > lateAfter {
			s.note(one.call, fmt.Sprintf("hook %s heard of %s %v late: it was busy", name, one.call.Event, late.Round(100*time.Millisecond)))
		}
		err := one.hook.call(s.ctx, one.call)
		if s.ctx.Err() != nil {
			continue // it was killed
		}
		s.count(one.call.Event, resultOf(err))
		if err != nil {
			s.note(one.call, problemText(err))
		}
	}
}
