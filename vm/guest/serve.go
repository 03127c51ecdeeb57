package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// A Handler carries out one method. ctx ends when another host has synced or the
// server stops; only methods that wait need to look at it. id is the request's.
type Handler func(ctx context.Context, id string, params json.RawMessage) (any, error)

// A Server is the guest's side of the channel.
type Server struct {
	methods map[string]Handler
	out     chan []byte
	begun   sync.Once

	mu      sync.Mutex
	session context.Context
	end     context.CancelFunc
}

const (
	outQueue   = 256 // lines that wait to be written
	eventShare = 192 // of which events may take this many
	atOnce     = 32  // requests carried out at the same time
)

// NewServer serves methods.
func NewServer(methods map[string]Handler) *Server {
	s := &Server{methods: methods, out: make(chan []byte, outQueue)}
	s.session, s.end = context.WithCancel(context.Background())
	return s
}

// Emit queues an event, or drops it when the host reads too slowly. It never waits.
func (s *Server) Emit(event Event) {
	if len(s.out) >= eventShare {
		return
	}
	line, err := encode(Message{Event: event})
	if err != nil {
		return
	}
	select {
	case s.out <- line:
	default:
	}
}

// Serve reads requests from r and writes to w until r ends for good or ctx does;
// it returns r's error. A Write of w that blocks delays answers and drops events.
func (s *Server) Serve(ctx context.Context, r io.Reader, w io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go s.write(ctx, w)
	slots := make(chan struct{}, atOnce)
	lines := newLines(r)
	for {
		line, err := lines.Next()
		if errors.Is(err, ErrLineTooLong) {
			continue
		}
		if err != nil {
			return err
		}
		request, err := parseRequest(line)
		if err != nil {
			continue // half a line of a host that is gone
		}
		if request.Method == "sync" {
			s.sync(ctx, request)
			continue
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		session := s.current()
		go func() {
			defer func() { <-slots }()
			s.answer(ctx, s.carryOut(session, request))
		}()
	}
}

func (s *Server) current() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.session
}

// sync ends what the host before waits for, forgets what it has not read, and
// answers on a fresh line.
func (s *Server) sync(ctx context.Context, request Request) {
	s.mu.Lock()
	s.end()
	s.session, s.end = context.WithCancel(context.Background())
	s.mu.Unlock()
	for range len(s.out) {
		select {
		case <-s.out:
		default:
		}
	}
	line, err := encode(Message{ID: request.ID, Result: request.Params})
	if err == nil {
		s.queue(ctx, append([]byte{'\n'}, line...))
	}
}

func (s *Server) carryOut(ctx context.Context, request Request) Message {
	handler, ok := s.methods[request.Method]
	if !ok {
		return Message{ID: request.ID, Error: fmt.Sprintf("unknown method %q", request.Method)}
	}
	result, err := handler(ctx, request.ID, request.Params)
	if err != nil {
		return Message{ID: request.ID, Error: err.Error()}
	}
	raw, err := json.Marshal(result)
	if err != nil {
		return Message{ID: request.ID, Error: err.Error()}
	}
	return Message{ID: request.ID, Result: raw}
}

func (s *Server) answer(ctx context.Context, message Message) {
	line, err := encode(message)
	if err != nil {
		line, _ = encode(Message{ID: message.ID, Error: err.Error()})
	}
	s.queue(ctx, line)
}

func (s *Server) queue(ctx context.Context, line []byte) {
	select {
	case s.out <- line:
	case <-ctx.Done():
	}
}

// write begins with a newline, as a program before this one may have been killed in the middle of a line, and says that
// this one is new.
func (s *Server) write(ctx context.Context, w io.Writer) {
	s.begun.Do(func() {
		if line, err := encode(Message{Event: Event{Name: EventBegun}}); err == nil {
			_, _ = w.Write(append([]byte{'\n'}, line...))
		}
	})
	for {
		select {
		case line := <-s.out:
			// A port without a host takes nothing: the next sync begins afresh.
			_, _ = w.Write(line)
		case <-ctx.Done():
			return
		}
	}
}
