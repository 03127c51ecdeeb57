package hook

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode"

	"godwit/migration"
)

func TestHTTP(t *testing.T) {
	var got Call
	mux := http.NewServeMux()
	mux.HandleFunc("POST /go", func(_ http.ResponseWriter, r *http.Request) {
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
			t.Error(err)
		}
	})
	mux.HandleFunc("POST /no", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "not today\nnor tomorrow", http.StatusForbidden)
	})
	mux.HandleFunc("POST /elsewhere", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/go", http.StatusFound) })
	mux.HandleFunc("POST /gigabyte", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		for range 1 << 10 {
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				return
			}
		}
	})
	done := make(chan struct{})
	mux.HandleFunc("POST /hang", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-done:
		}
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	defer close(done)
	for _, c := range []struct {
		path  string
		code  migration.Code
		words []string
	}{
		{"/go", "", nil},
		{"/no", migration.CodeHook, []string{"answered 403", "not today"}},
		{"/elsewhere", migration.CodeHook, []string{"answered 302"}},
		{"/gigabyte", migration.CodeHook, []string{"answered 418"}},
		{"/hang", migration.CodeTimeout, []string{"limit hook_blocking of 500ms passed"}},
		{"/none", migration.CodeHook, []string{"answered 404"}},
	} {
		t.Run(c.path, func(t *testing.T) {
			limit := time.Minute
			if c.code == migration.CodeTimeout {
				limit = 500 * time.Millisecond
			}
			b := newBench(t, Config{HTTP: []HTTP{{URL: server.URL + c.path, Events: []migration.EventName{aCall.Event}, Timeout: limit}}})
			b.ask(c.code, c.words...)
		})
	}
	if got.Plan.Guest != "web" || !got.Blocking {
		t.Errorf("%+v", got)
	}
	b := newBench(t, Config{HTTP: []HTTP{{URL: "http://127.0.0.1:1/", Events: []migration.EventName{aCall.Event}}}})
	b.ask(migration.CodeHook, "connection refused")
}

// TestUglyAnswers: whatever a server says, what is noted of it is short, and does nothing to a terminal.
func TestUglyAnswers(t *testing.T) {
	long := strings.Repeat("x", 100<<10)
	for name, c := range map[string]struct{ answer, want string }{
		"a status in colour":    {"HTTP/1.1 500 \x1b[31mno\x1b[0m\r\nContent-Length: 0\r\n\r\n", "answered 500  [31mno [0m"},
		"a long status":         {"HTTP/1.1 500 " + long + "\r\nContent-Length: 0\r\n\r\n", "answered 500 xxx"},
		"a line in colour":      {"HTTP/1.1 403 No\r\nContent-Length: 10\r\n\r\n\u009b31mno\xe2\x80\xae", "answered 403 No: 31mno"},
		"no status":             {"HTTP/1.1 \x1b[31m" + long + "\r\n\r\n", "malformed HTTP"},
		"no HTTP":               {long + "\x1b\r\n\r\n", "malformed HTTP"},
		"a redirection, so far": {"HTTP/1.1 302 \x1b\r\nLocation: /\r\nContent-Length: 0\r\n\r\n", "answered 302"},
	} {
		t.Run(name, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			served := make(chan struct{})
			go func() {
				defer close(served)
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					io.WriteString(conn, c.answer) //nolint:errcheck // seen by what is said of it
				}
			}()
			t.Cleanup(func() { listener.Close(); <-served })
			b := newBench(t, Config{HTTP: []HTTP{{URL: "http://" + listener.Addr().String(), Events: []migration.EventName{aCall.Event}, Timeout: unhung}}})
			_, err = b.set.Ask(t.Context(), aCall)
			if err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 2500 || strings.ContainsFunc(err.Error(), func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("%.3000q; want %q", err, c.want)
			}
		})
	}
}
