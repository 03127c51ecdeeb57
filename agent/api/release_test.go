package api

import (
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// TestAgentOfBefore: of one that was begun by a release which does not know yet what it is asked, as before it is
// started again in an upgrade, that is said, with what to do.
func TestAgentOfBefore(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/guests/{name}/known", func(http.ResponseWriter, *http.Request) {})
	server := &http.Server{Handler: mux} //nolint:gosec // of a test
	go server.Serve(listener)            //nolint:errcheck // it ends with the test
	t.Cleanup(func() { server.Close() }) //nolint:errcheck // likewise
	client := NewClient(socket)
	defer client.Close()
	for name, ask := range map[string]func() error{
		"a path":   func() error { _, err := client.ForgetAway(t.Context(), "web"); return err },
		"a method": func() error { return client.tell(t.Context(), 1, "/v1/guests/web/known", nil) },
	} {
		err := ask()
		if err == nil || !strings.Contains(err.Error(), socket+": it does not know what it is asked, as one of another release (40") || !strings.HasSuffix(err.Error(), "; start it again by the godwit of this release") {
			t.Errorf("%s that it does not know: %v", name, err)
		}
	}
}
