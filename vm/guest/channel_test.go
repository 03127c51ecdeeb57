package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCallsAnswerInAnyOrder(t *testing.T) {
	release := make(chan struct{})
	_, p := serve(t, map[string]Handler{
		"echo": echo,
		"wait": func(ctx context.Context, _ string, _ json.RawMessage) (any, error) { <-release; return "late", nil },
		"fail": func(context.Context, string, json.RawMessage) (any, error) { return nil, errors.New("no such NIC") },
	})
	client := dial(t, p)
	late := make(chan error, 1)
	go func() {
		var result string
		err := client.Call(t.Context(), "wait", nil, &result)
		if err == nil && result != "late" {
			err = fmt.Errorf("result %q", result)
		}
		late <- err
	}()
	var got string
	if err := client.Call(t.Context(), "echo", "hello\nyou", &got); err != nil || got != "hello\nyou" {
		t.Errorf("echo: %q, %v", got, err)
	}
	var refused *CallError
	if err := client.Call(t.Context(), "fail", nil, nil); !errors.As(err, &refused) || refused.Text != "no such NIC" {
		t.Errorf("fail: %v", err)
	}
	if err := client.Call(t.Context(), "nothing", nil, nil); !errors.As(err, &refused) {
		t.Errorf("unknown method: %v", err)
	}
	close(release)
	if err := <-late; err != nil {
		t.Error(err)
	}
}

// TestNextHostFindsItsFeet leaves half a line in both directions, as a killed agent
// or a migration does, and dials again.
func TestNextHostFindsItsFeet(t *testing.T) {
	server, p := serve(t, map[string]Handler{"echo": echo})
	p.left = "-7\",\"result\":1}\n{\"id\":\"stale-1\",\"resu"
	if _, err := io.WriteString(p.toGuest, `{"id":"x-1","method":"ec`); err != nil {
		t.Fatal(err)
	}
	server.Emit(Event{Name: EventTick, N: 1})
	for range 3 {
		client := dial(t, p)
		var got int
		if err := client.Call(t.Context(), "echo", 42, &got); err != nil || got != 42 {
			t.Fatalf("echo: %d, %v", got, err)
		}
		// The next host reads the port by itself; this one's reader must be gone.
		client.Close()
		p.drain(t)
	}
}

// TestNextProgramFindsItsFeet: a guest's program is killed in the middle of a line. What that one was asked the next
// one is asked, unless it would be done twice, and what that says is heard.
func TestNextProgramFindsItsFeet(t *testing.T) {
	near, far := net.Pipe()
	ended := make(chan error, 1)
	first := func() error {
		lines := newLines(far)
		line, err := lines.Next()
		if err != nil {
			return err
		}
		sync, err := parseRequest(line)
		if err == nil {
			_, err = fmt.Fprintf(far, "{\"id\":%q,\"result\":null}\n", sync.ID)
		}
		if err == nil {
			_, err = lines.Next() // what is done once
		}
		if err == nil {
			_, err = lines.Next() // what may be asked again
		}
		if err == nil {
			_, err = fmt.Fprintf(far, "{\"id\":\"%s-1\",\"resu", sync.ID)
		}
		return err
	}
	go func() {
		if err := first(); err != nil {
			ended <- err
			return
		}
		ended <- NewServer(map[string]Handler{"echo": echo, "exec": echo}).Serve(t.Context(), far, far)
	}()
	client, err := NewClient(t.Context(), near)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	once := make(chan error, 1)
	go func() { once <- client.Call(ctx, "exec", 41, nil) }()
	var got int
	if err := client.Call(ctx, "echo", 42, &got); err != nil || got != 42 {
		t.Errorf("echo: %d, %v", got, err)
	}
	if err := <-once; !errors.Is(err, ErrBegunAnew) {
		t.Errorf("what is done once: %v", err)
	}
	client.Close()
	far.Close()
	<-ended
}

func TestSyncEndsWhatTheHostBeforeWaitsFor(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan struct{})
	_, p := serve(t, map[string]Handler{
		"wait": func(ctx context.Context, _ string, _ json.RawMessage) (any, error) {
			cancel() // its host's patience
			<-ctx.Done()
			close(ended)
			return nil, ctx.Err()
		},
	})
	first := dial(t, p)
	if err := first.Call(ctx, "wait", nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("wait: %v", err)
	}
	first.Close()
	p.drain(t)
	dial(t, p)
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Error("the request of a gone host still waits")
	}
}

func TestUnreadPortDropsEventsAndBlocksNobody(t *testing.T) {
	server, p := serve(t, map[string]Handler{"echo": echo})
	start := time.Now()
	for n := range uint64(10 * outQueue) {
		server.Emit(Event{Name: EventTick, N: n})
	}
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("emitting to nobody took %v", took)
	}
	client := dial(t, p)
	var got int
	if err := client.Call(t.Context(), "echo", 1, &got); err != nil {
		t.Fatal(err)
	}
	server.Emit(Event{Name: EventTick, N: 99999, MonoNS: 5})
	for event := range client.Events() {
		if event.N == 99999 && event.MonoNS == 5 && !event.At.IsZero() {
			return
		}
	}
}

func TestClosedConnectionEndsCalls(t *testing.T) {
	_, p := serve(t, map[string]Handler{
		"wait": func(ctx context.Context, _ string, _ json.RawMessage) (any, error) { <-ctx.Done(); return nil, nil },
	})
	client := dial(t, p)
	time.AfterFunc(20*time.Millisecond, func() { client.Close() })
	if err := client.Call(t.Context(), "wait", nil, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
	if err := client.Call(t.Context(), "echo", nil, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("after that: got %v, want ErrClosed", err)
	}
	p.drain(t)
	dial(t, p) // ends the request that still waits
}

func TestSilentGuestEndsWithTheContext(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	go func() { _, _ = io.Copy(io.Discard, far) }()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := NewClient(ctx, near); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want that the deadline passed", err)
	}
}
