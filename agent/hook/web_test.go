package hook

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

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
		{"/no", migration.CodeHook, []string{"403", "not today"}},
		{"/elsewhere", migration.CodeHook, []string{"302"}},
		{"/gigabyte", migration.CodeHook, []string{"418"}},
		{"/hang", migration.CodeTimeout, []string{"limit hook_blocking of 500ms passed"}},
		{"/none", migration.CodeHook, []string{"404"}},
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
