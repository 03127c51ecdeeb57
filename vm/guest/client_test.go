package guest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// late is a connection on which a call is given up just as its line is written, and that is
// slow to hear of it.
type late struct {
	net.Conn
	giveUp atomic.Pointer[context.CancelFunc]
	heard  chan struct{} // takes one when it has
}

// Write leaves the sync out: a program that says that it has begun is sent another, whenever that is read.
func (l *late) Write(p []byte) (int, error) {
	n, err := l.Conn.Write(p)
	if bytes.Contains(p, []byte(`"echo"`)) {
		if f := l.giveUp.Swap(nil); f != nil {
			(*f)()
		}
	}
	return n, err
}

func (l *late) SetWriteDeadline(t time.Time) error {
	if t.IsZero() {
		return l.Conn.SetWriteDeadline(t)
	}
	time.Sleep(50 * time.Millisecond)
	defer func() { l.heard <- struct{}{} }()
	return l.Conn.SetWriteDeadline(t)
}

// TestCallGivenUpSparesTheNext: a call that is given up as its line has been written leaves
// the channel as it was.
func TestCallGivenUpSparesTheNext(t *testing.T) {
	_, p := serve(t, map[string]Handler{"echo": echo})
	conn := &late{Conn: p.connect(t), heard: make(chan struct{}, 1)}
	client, err := NewClient(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	conn.giveUp.Store(&cancel)
	_ = client.Call(ctx, "echo", "first", nil)
	<-conn.heard
	var got string
	if err := client.Call(t.Context(), "echo", "second", &got); err != nil || got != "second" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestGuestsWordsAreOneLine: what a guest says is shown to people, and moves no terminal.
func TestGuestsWordsAreOneLine(t *testing.T) {
	const said = "no\x1b[2J such\nNIC"
	_, p := serve(t, map[string]Handler{
		"make_main": func(context.Context, string, json.RawMessage) (any, error) { return nil, errors.New(said) },
		"await_join": func(context.Context, string, json.RawMessage) (any, error) {
			return Joins{Unable: []Unable{{Why: said}, {Why: strings.Repeat("why ", 300)}}}, nil
		},
		"info": func(context.Context, string, json.RawMessage) (any, error) {
			return json.RawMessage(`{"uptime_ms":` + strings.Repeat("1", 32<<10) + "}"), nil
		},
	})
	client := dial(t, p)
	const shown = "no [2J such NIC"
	if err := client.MakeMain(t.Context(), ""); err == nil || !strings.HasSuffix(err.Error(), shown) {
		t.Errorf("%q", err)
	}
	if _, err := client.Info(t.Context()); err == nil || len(err.Error()) > 4000 {
		t.Errorf("%.200v, of %d bytes", err, len(fmt.Sprint(err)))
	}
	joins, err := client.AwaitJoin(t.Context(), AwaitJoin{})
	if err != nil || len(joins.Unable) != 2 || joins.Unable[0].Why != shown || len(joins.Unable[1].Why) != longestWhy {
		t.Errorf("%q, %v", joins.Unable, err)
	}
}

// ending is a connection of which a write returns when the client has read all that the guest said upon it, and its end.
type ending struct {
	net.Conn
	over chan struct{} // closed when that is so; nil: not yet
}

func (e *ending) Write(p []byte) (int, error) {
	n, err := e.Conn.Write(p)
	if e.over != nil {
		<-e.over
	}
	return n, err
}

// TestAnswerBeforeTheEnd: what a guest answered just before its channel ended, as one that powers off does, is its answer.
func TestAnswerBeforeTheEnd(t *testing.T) {
	for range 32 { // chosen by chance, it would be taken in half of these
		here, there := net.Pipe()
		go func() {
			defer there.Close()
			for lines := newLines(there); ; {
				line, err := lines.Next()
				if err != nil {
					return
				}
				request, err := parseRequest(line)
				if err != nil {
					return
				}
				answer, err := encode(Message{ID: request.ID, Result: json.RawMessage(`"done"`)})
				if err != nil {
					return
				}
				if _, err := there.Write(answer); err != nil || request.Method != "sync" {
					return
				}
			}
		}()
		conn := &ending{Conn: here}
		client, err := NewClient(t.Context(), conn)
		if err != nil {
			t.Fatal(err)
		}
		conn.over = make(chan struct{})
		go func() { <-client.Done(); close(conn.over) }()
		var got string
		if err := client.Call(t.Context(), "poweroff", nil, &got); err != nil || got != "done" {
			t.Fatalf("%q, %v", got, err)
		}
	}
}
