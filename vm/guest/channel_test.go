package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// port is a virtio-serial port in small: it outlives the hosts that connect to it,
// and keeps what the last one left in it.
type port struct {
	toGuest, toHost *io.PipeWriter
	guestReads      *io.PipeReader
	hostReads       *io.PipeReader

	piece  int           // bytes that come at a time; 0: one, so that lines break anywhere
	left   string        // by the last host: the next one reads it first
	copied chan struct{} // closed when the last host's copying has ended
}

func newPort() *port {
	p := &port{}
	p.guestReads, p.toGuest = io.Pipe()
	p.hostReads, p.toHost = io.Pipe()
	return p
}

// connect gives a host its end; closing it leaves the port open.
func (p *port) connect(t *testing.T) net.Conn {
	t.Helper()
	near, far := net.Pipe()
	go func() { _, _ = io.Copy(p.toGuest, far) }()
	copied, left := make(chan struct{}), p.left
	p.copied, p.left = copied, ""
	go func() {
		defer close(copied)
		_, _ = io.WriteString(far, left)
		buffer := make([]byte, max(p.piece, 1))
		for {
			n, err := p.hostReads.Read(buffer)
			if err != nil {
				far.Close()
				return
			}
			if _, err := far.Write(buffer[:n]); err != nil {
				return
			}
		}
	}()
	return near
}

func serve(t *testing.T, methods map[string]Handler) (*Server, *port) {
	t.Helper()
	server, p := NewServer(methods), newPort()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(context.Background(), p.guestReads, p.toHost)
	}()
	t.Cleanup(func() {
		p.toGuest.Close()
		p.hostReads.Close()
		p.toHost.Close()
		<-ended
	})
	return server, p
}

func dial(t *testing.T, p *port) *Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	client, err := NewClient(ctx, p.connect(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

func echo(_ context.Context, _ string, params json.RawMessage) (any, error) { return params, nil }

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

// drain ends the copying of the host before, which waits for one more byte, and passes that on while its end is open still.
func (p *port) drain(t *testing.T) {
	t.Helper()
	for {
		taken := make(chan struct{})
		go func() {
			defer close(taken)
			_, _ = io.WriteString(p.toHost, "\n")
		}()
		select {
		case <-p.copied:
			return
		case <-taken:
		}
	}
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

func TestLongLinesAreSkipped(t *testing.T) {
	long := strings.Repeat("x", MaxLine)
	lines := NewLines(strings.NewReader("a\n\n" + long + "\nb\n" + long[1:] + "\nhalf"))
	for _, want := range []struct {
		line string
		err  error
	}{{"a", nil}, {"", ErrLineTooLong}, {"b", nil}, {long[1:], nil}, {"", io.ErrUnexpectedEOF}, {"", io.EOF}} {
		line, err := lines.Next()
		if string(line) != want.line || !errors.Is(err, want.err) {
			t.Fatalf("got %.20q %v, want %.20q %v", line, err, want.line, want.err)
		}
	}
}

func FuzzLines(f *testing.F) {
	f.Add([]byte("{\"id\":\"1\",\"method\":\"sync\"}\n\n{\"event\":\"tick\"}\nhalf"))
	f.Add([]byte("\x00\xff\n{\"id\":\"1\",\"error\":\"x\"}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		lines := NewLines(strings.NewReader(string(b)))
		for {
			line, err := lines.Next()
			if errors.Is(err, ErrLineTooLong) {
				continue
			}
			if err != nil {
				return
			}
			if len(line) == 0 || len(line) > MaxLine || strings.ContainsRune(string(line), '\n') {
				t.Fatalf("line %q", line)
			}
			if r, err := ParseRequest(line); err == nil {
				again, err := encode(r)
				if err != nil && len(line) < MaxLine/8 {
					t.Fatalf("encode %+v: %v", r, err)
				}
				if err == nil && strings.Count(string(again), "\n") != 1 {
					t.Fatalf("%q is not one line", again)
				}
			}
			_, _ = ParseMessage(line)
		}
	})
}

// TestConnectionsInParts: a list that does not fit into a line comes in parts, once each.
func TestConnectionsInParts(t *testing.T) {
	const many = 2*ConnectionsListed + 7
	var all []Connection
	for i := range uint16(many) {
		all = append(all, Connection{Kind: KindTCP, Local: netip.AddrPortFrom(netip.MustParseAddr("10.1.1.2"), i)})
	}
	for _, c := range []struct {
		name            string
		number          uint64 // that the guest gives its list; 0: it knows of no parts
		kept            int    // as long it keeps it
		listed, omitted int
	}{
		{"whole", 3, many, many, 0},
		{"no parts", 0, many, ConnectionsListed, many - ConnectionsListed},
		{"another list was begun", 3, ConnectionsListed, ConnectionsListed, many - ConnectionsListed},
	} {
		asked := 0
		_, p := serve(t, map[string]Handler{ConnectionsMethod: func(_ context.Context, _ string, raw json.RawMessage) (any, error) {
			var ask connectionsParams
			if err := json.Unmarshal(raw, &ask); err != nil || ask.From > 0 && ask.Number != c.number {
				t.Errorf("%s: asked for %s, %v", c.name, raw, err)
			}
			if asked++; ask.From >= c.kept {
				return Connections{List: []Connection{}}, nil
			}
			end := min(ask.From+ConnectionsListed, many)
			return Connections{List: all[ask.From:end], Omitted: many - end, Number: c.number}, nil
		}})
		p.piece = 4 << 10
		client, err := NewClient(t.Context(), p.connect(t))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		got, err := client.Connections(t.Context(), netip.MustParseAddr("10.1.1.2"))
		if err != nil || len(got.List) != c.listed || got.Omitted != c.omitted {
			t.Errorf("%s: %d listed, %d omitted after %d questions, %v; want %d, %d", c.name, len(got.List), got.Omitted, asked, err, c.listed, c.omitted)
		}
		for i, one := range got.List {
			if one.Local.Port() != uint16(i) {
				t.Fatalf("%s: number %d is %v", c.name, i, one.Local)
			}
		}
	}
}

// TestSyncSeldom: a guest that is copied for ten minutes has a few syncs to answer when it
// wakes, not one for every two seconds.
func TestSyncSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		var asked atomic.Int64
		go func() {
			lines := NewLines(far)
			for {
				line, err := lines.Next()
				if err != nil {
					return
				}
				if r, err := ParseRequest(line); err == nil && r.Method == "sync" {
					asked.Add(1)
				}
			}
		}()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		if c, err := NewClient(ctx, near); err == nil {
			c.Close()
			t.Fatal("nobody answered, and it is synced")
		}
		far.Close()
		if n := asked.Load(); n < 5 || n > 20 {
			t.Fatalf("asked %d times in ten minutes", n)
		}
	})
}

// TestOpenSaysNothingFirst: who opens a channel says nothing before the first call, which goes right
// behind the sync; and what the guest said before that is nobody's.
func TestOpenSaysNothingFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		c := newClient(near)
		defer c.Close()
		lines := make(chan Request, 10)
		go func() {
			for read := NewLines(far); ; {
				line, err := read.Next()
				if err != nil {
					return
				}
				if r, err := ParseRequest(line); err == nil {
					lines <- r
				}
			}
		}()
		time.Sleep(10 * time.Minute) // the guest is being copied
		if len(lines) > 0 {
			t.Fatalf("it said %v", <-lines)
		}
		answer := make(chan error, 1)
		var said string
		go func() { answer <- c.Call(t.Context(), "echo", "a", &said) }()
		sync, call := <-lines, <-lines
		if sync.Method != "sync" || call.Method != "echo" {
			t.Fatalf("asked %s, then %s", sync.Method, call.Method)
		}
		for _, m := range []Message{{ID: call.ID, Result: json.RawMessage(`"before"`)}, {ID: sync.ID, Result: sync.Params}, {ID: call.ID, Result: json.RawMessage(`"after"`)}} {
			line, err := encode(m)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := far.Write(line); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-answer; err != nil || said != "after" {
			t.Errorf("answer %q, %v", said, err)
		}
		time.Sleep(time.Minute)
		if c.failure() != nil {
			t.Errorf("a guest that has answered: %v", c.failure())
		}
	})
}

// TestOpenedButSilent: a guest that does not answer the sync is left, so that somebody dials it anew.
func TestOpenedButSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		go io.Copy(io.Discard, far) //nolint:errcheck // until it ends
		c := newClient(near)
		begun := time.Now()
		if err := c.Call(t.Context(), "echo", "a", nil); !errors.Is(err, ErrClosed) || time.Since(begun) != echoLimit {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
	})
}
