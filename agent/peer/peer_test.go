package peer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"godwit/migration"
)

// Agents of the tests answer here; every call goes over loopback.
var loopback = netip.MustParseAddr("127.0.0.1")

// fleet is a CA with identities for hosts.
func fleet(t *testing.T, hosts ...string) map[string]*Identity {
	t.Helper()
	dir := t.TempDir()
	ca, err := NewFleetCA(dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*Identity{}
	for _, host := range hosts {
		if err := ca.Issue(host, time.Now()); err != nil {
			t.Fatal(err)
		}
		if out[host], err = LoadIdentity(filepath.Join(dir, "ca.pem"), filepath.Join(dir, host+".pem"), filepath.Join(dir, host+".key")); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func freePort(t *testing.T) uint16 {
	t.Helper()
	ln, err := net.Listen("tcp", netip.AddrPortFrom(loopback, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return uint16(ln.Addr().(*net.TCPAddr).Port)
}

func serve(t *testing.T, id *Identity, port uint16, handler http.Handler, streams func(*Stream)) {
	t.Helper()
	if streams == nil {
		streams = func(s *Stream) { t.Errorf("a stream from %s", s.Caller) }
	}
	err := Serve(t.Context(), id, []netip.AddrPort{netip.AddrPortFrom(loopback, port)}, handler, streams, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
}

func linkTo(t *testing.T, id *Identity, host string, port uint16) *Link {
	t.Helper()
	l := NewLink(id, host, port, []Path{{Name: "lo-lo", Local: loopback, Remote: loopback}})
	t.Cleanup(l.Close)
	return l
}

type greeting struct {
	Text string `json:"text"`
	From string `json:"from"`
}

// echo answers with what it was sent and by whom, or with the problem it was told.
func echo() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /echo", func(w http.ResponseWriter, r *http.Request) {
		var in greeting
		err := Decode(r, &in)
		Answer(w, greeting{in.Text, Caller(r)}, err)
	})
	mux.HandleFunc("POST /problem", func(w http.ResponseWriter, _ *http.Request) {
		Answer(w, nil, fmt.Errorf("more words: %w", &migration.Problem{Code: migration.CodeAddress, Text: "guest web: no address"}))
	})
	mux.HandleFunc("POST /nothing", func(w http.ResponseWriter, _ *http.Request) { Answer(w, nil, nil) })
	mux.HandleFunc("POST /odd", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "odd") })
	return mux
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// ends calls, for longer and longer on a busy machine, until the error ends in what a whole try says; it returns the error.
func ends(t *testing.T, l *Link, says string) error {
	t.Helper()
	for d := 300 * time.Millisecond; ; d *= 4 {
		err := l.Call(within(t, d), http.MethodPost, "/echo", nil, nil)
		if err == nil || !strings.HasSuffix(err.Error(), says) && d > 10*time.Second {
			t.Errorf("%v, want %q at its end", err, says)
		} else if !strings.HasSuffix(err.Error(), says) {
			continue
		}
		return err
	}
}

func TestCall(t *testing.T) {
	ids := fleet(t, "paris", "rome")
	port := freePort(t)
	serve(t, ids["rome"], port, echo(), nil)
	link := linkTo(t, ids["paris"], "rome", port)
	ctx := t.Context() // a busy machine takes long for 8 MiB

	if trip := link.Trip(); trip != 0 {
		t.Errorf("before a call its way takes %v", trip)
	}
	var out greeting
	if err := link.Call(ctx, http.MethodPost, "/echo", greeting{Text: "hello"}, &out); err != nil {
		t.Fatal(err)
	}
	if trip := link.Trip(); trip <= 0 || trip > time.Second {
		t.Errorf("a call's way takes %v", trip)
	}
	if out != (greeting{"hello", "paris"}) {
		t.Errorf("answer %+v: want the text, and the caller by its certificate", out)
	}
	if err := link.Call(ctx, http.MethodPost, "/nothing", nil, nil); err != nil {
		t.Errorf("a call without an answer: %v", err)
	}
	for _, c := range []struct {
		path string
		body any
		want migration.Problem
	}{
		{"/problem", nil, migration.Problem{Code: migration.CodeAddress, Text: "guest web: no address"}},
		{"/echo", greeting{Text: strings.Repeat("x", requestLimit)}, migration.Problem{Code: migration.CodePeer, Text: "read request: larger than 8 MiB"}},
		{"/echo", []int{1}, migration.Problem{Code: migration.CodeUsage}},
		{"/odd", nil, migration.Problem{Code: migration.CodePeer}},
	} {
		err := link.Call(ctx, http.MethodPost, c.path, c.body, &out)
		problem := &migration.Problem{}
		if !errors.As(err, &problem) || problem.Code != c.want.Code || c.want.Text != "" && problem.Text != c.want.Text {
			t.Errorf("%s: %v, want the problem %+v", c.path, err, c.want)
		}
	}
}

// TestAnswersAreOneLine: nothing that another agent answers makes an error longer than a line, which is kept and told
// to people, and none moves a terminal.
func TestAnswersAreOneLine(t *testing.T) {
	ids := fleet(t, "paris", "rome")
	port := freePort(t)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /number", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"n":`+strings.Repeat("1", 1<<16)+"}")
	})
	mux.HandleFunc("POST /status", func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			io.WriteString(conn, "HTTP/1.1 500 \x1b[2J"+strings.Repeat("x", 1<<16)+"\r\nContent-Length: 0\r\n\r\n")
			conn.Close()
		}
	})
	mux.HandleFunc("POST /header", func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\n\x1b[2J"+strings.Repeat("x", 1<<16)+"\r\n\r\n")
			conn.Close()
		}
	})
	serve(t, ids["rome"], port, mux, nil)
	link := linkTo(t, ids["paris"], "rome", port)
	for path, want := range map[string]string{"/number": "cannot unmarshal number", "/status": "answered 500", "/header": "malformed MIME header"} {
		var out struct{ N int }
		var err error
		for d := time.Second; d < time.Minute && (err == nil || !strings.Contains(err.Error(), want)); d *= 4 { // a busy machine's first try may not be answered
			err = link.Call(within(t, d), http.MethodPost, path, nil, &out)
		}
		if text := fmt.Sprint(err); !strings.Contains(text, want) || len(text) > 4000 || strings.Contains(text, "\x1b") {
			t.Errorf("%s: %.200q, of %d bytes", path, text, len(text))
		}
	}
}

// TestStrangers: only the host that was meant answers, and only the fleet is heard.
func TestStrangers(t *testing.T) {
	ours, theirs := fleet(t, "paris", "rome"), fleet(t, "paris", "rome")
	port := freePort(t)
	serve(t, ours["rome"], port, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a stranger was heard")
	}), nil)
	half := &Identity{now: &papers{cert: theirs["paris"].now.cert, pool: ours["paris"].now.pool}} // trusts us, we do not trust it
	for _, c := range []struct {
		name string
		id   *Identity
		host string
		once bool // a certificate that is wrong does not change
	}{
		{"the server is not of the caller's fleet", theirs["paris"], "rome", true},
		{"the server is another host", ours["paris"], "berlin", true},
		{"the caller is not of the server's fleet", half, "rome", false},
		{"the caller has no certificate", &Identity{now: &papers{pool: ours["paris"].now.pool}}, "rome", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			const asks = "are both hosts' certificates of this fleet, not over, and their clocks right? `godwit doctor` on each says it"
			link := linkTo(t, c.id, c.host, port)
			err := ends(t, link, asks)
			var away *Unreachable
			if !errors.As(err, &away) || away.Host != c.host {
				t.Errorf("%v, want unreachable", err)
			}
			if ctx := within(t, 20*time.Second); c.once && (link.Call(ctx, http.MethodPost, "/echo", nil, nil) == nil || ctx.Err() != nil) {
				t.Error("a wrong certificate was tried until the end")
			}
			conn, err := linkTo(t, c.id, c.host, port).Open(within(t, 5*time.Second), Path{Local: loopback, Remote: loopback}, Header{}, 0)
			if err == nil { // TLS 1.3: a client hears of its refusal when it reads
				defer conn.Close()
				if _, err := conn.Read(make([]byte, 1)); err == nil {
					t.Error("a stranger's stream was answered")
				}
			}
		})
	}
}

// TestNoPath: a host that no path leads to is said to be unreachable at once.
func TestNoPath(t *testing.T) {
	ctx := within(t, 10*time.Second)
	link := NewLink(nil, "rome", 1, nil)
	t.Cleanup(link.Close)
	var away *Unreachable
	if err := link.Call(ctx, http.MethodPost, "/echo", nil, nil); !errors.As(err, &away) || !strings.Contains(err.Error(), "no path to rome") || ctx.Err() != nil {
		t.Errorf("%v", err)
	}
}

// TestUnreachableAsks: a person is told to look at what the last whole try met.
func TestUnreachableAsks(t *testing.T) {
	ids := fleet(t, "paris", "rome")
	port := freePort(t)
	link := linkTo(t, ids["paris"], "rome", port)
	ends(t, link, "connection refused; is it running there?") //nolint:errcheck // it is looked at there
	serve(t, ids["rome"], port, echo(), nil)
	at, _ := farUntil(t, port, func() { <-t.Context().Done() })
	late := NewLink(ids["paris"], "rome", port, []Path{{Name: "far", Local: loopback, Remote: at}})
	t.Cleanup(late.Close)
	ends(t, late, "do the uplinks carry packets both ways?") //nolint:errcheck // as above
}

func TestCallWaitsForTheServer(t *testing.T) {
	ids := fleet(t, "paris", "rome")
	port := freePort(t)
	answered := make(chan error, 1)
	var out greeting
	go func() {
		answered <- linkTo(t, ids["paris"], "rome", port).Call(within(t, 10*time.Second), http.MethodPost, "/echo", greeting{Text: "late"}, &out)
	}()
	select {
	case err := <-answered:
		t.Fatalf("answered by nobody: %v", err)
	case <-time.After(120 * time.Millisecond): // two tries
	}
	serve(t, ids["rome"], port, echo(), nil)
	if err := <-answered; err != nil || out.Text != "late" {
		t.Fatalf("%+v, %v", out, err)
	}
}

// TestCallTakesTheOtherPath: a path that is dead costs one stagger, not the call.
func TestCallTakesTheOtherPath(t *testing.T) {
	ids := fleet(t, "paris", "rome")
	port := freePort(t)
	serve(t, ids["rome"], port, echo(), nil)
	link := NewLink(ids["paris"], "rome", port, []Path{
		{Name: "dead", Local: loopback, Remote: netip.MustParseAddr("127.0.0.2")}, // nobody listens there
		{Name: "well", Local: loopback, Remote: loopback},
	})
	t.Cleanup(link.Close)
	var out greeting
	if err := link.Call(within(t, 5*time.Second), http.MethodPost, "/echo", greeting{Text: "by the other"}, &out); err != nil || out.Text != "by the other" {
		t.Fatalf("%+v, %v", out, err)
	}
	none := NewLink(ids["paris"], "rome", port, nil)
	if err := none.Call(within(t, time.Second), http.MethodPost, "/echo", nil, nil); err == nil || !strings.Contains(err.Error(), "no path to rome is configured") {
		t.Errorf("without a path: %v", err)
	}
}

// TestCallPassesByAnotherHost: where one path leads to another host's agent, as a private subnet of both sites may, a call
// waits for the host that is meant, whose agent begins to listen on its other path.
func TestCallPassesByAnotherHost(t *testing.T) {
	ids := fleet(t, "paris", "rome", "milan")
	there, port := netip.MustParseAddr("127.0.0.2"), freePort(t)
	serve(t, ids["milan"], port, http.NotFoundHandler(), nil)
	begins, err := net.Listen("tcp", netip.AddrPortFrom(there, port).String())
	if err != nil {
		t.Fatal(err)
	}
	defer begins.Close()
	link := NewLink(ids["paris"], "rome", port, []Path{{Name: "milan's", Local: loopback, Remote: loopback}, {Name: "well", Local: loopback, Remote: there}})
	t.Cleanup(link.Close)
	answered := make(chan error, 1)
	go func() {
		answered <- link.Call(within(t, 30*time.Second), http.MethodPost, "/echo", greeting{Text: "late"}, nil)
	}()
	conn, err := begins.Accept()
	if err != nil {
		t.Fatal(err)
	}
	begins.Close()
	conn.Close()
	if err := Serve(t.Context(), ids["rome"], []netip.AddrPort{netip.AddrPortFrom(there, port)}, echo(), nil, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Error(err)
	}
}

// TestEveryPathToAnotherHost: trying again does not change what all paths lead to; where one does not lead there, both are told.
func TestEveryPathToAnotherHost(t *testing.T) {
	ids := fleet(t, "paris", "rome", "milan")
	port := freePort(t)
	serve(t, ids["milan"], port, http.NotFoundHandler(), nil)
	all := []Path{{Name: "a", Local: loopback, Remote: loopback}, {Name: "b", Local: loopback, Remote: loopback}}
	link := NewLink(ids["paris"], "rome", port, all)
	t.Cleanup(link.Close)
	err := link.Call(t.Context(), http.MethodPost, "/echo", nil, nil) // which ends, without a limit
	var away *Unreachable
	if !errors.As(err, &away) || !away.Disbelieved() || !strings.Contains(err.Error(), "milan") {
		t.Errorf("every path: %v", err)
	}
	all[1].Remote = netip.MustParseAddr("127.0.0.2") // nobody listens there
	one := NewLink(ids["paris"], "rome", port, all)
	t.Cleanup(one.Close)
	_, err = one.dialAny(t.Context())
	if away = (&Unreachable{Cause: err}); !away.Disbelieved() || !errors.Is(err, syscall.ECONNREFUSED) || !strings.Contains(err.Error(), "milan") {
		t.Errorf("one path: %v", err)
	}
}

func TestAsProblem(t *testing.T) {
	own := &migration.Problem{Code: migration.CodeBudget, Text: "too slow"}
	for _, c := range []struct {
		err  error
		want migration.Code
	}{
		{fmt.Errorf("call: %w", own), migration.CodeBudget},
		{fmt.Errorf("call: %w", &Unreachable{"rome", context.DeadlineExceeded}), migration.CodePeer},
		{fmt.Errorf("wait: %w", context.DeadlineExceeded), migration.CodeTimeout},
		{errors.New("odd"), migration.CodeInternal},
	} {
		p := AsProblem(c.err)
		data, err := json.Marshal(p)
		var back migration.Problem
		if err != nil || json.Unmarshal(data, &back) != nil || back != *p || p.Code != c.want || p.Text == "" {
			t.Errorf("%v: %+v, on the wire %s", c.err, p, data)
		}
	}
}
