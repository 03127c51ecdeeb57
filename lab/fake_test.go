package lab

import (
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"godwit/agent/api"
	"godwit/lab/topo"
)

// anAgent is the agent of a host that answers as mux does, until the test ends.
func anAgent(t *testing.T, host string, mux http.Handler) *hostAgent {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "agent.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go server.Serve(listener) //nolint:errcheck // it ends with the test
	t.Cleanup(func() { server.Close() })
	return &hostAgent{host: topo.Host{Name: host}, client: api.NewClient(socket)}
}

// hasWeb makes that agent the one of host a of a run, which has guest web.
func (r *run) hasWeb(t *testing.T, mux http.Handler) {
	t.Helper()
	r.w.agents["a"] = anAgent(t, "a", mux)
	r.w.where["web"] = "a"
}
