package lab

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"godwit/agent/api"
	"godwit/lab/scenario"
	"godwit/lab/topo"
	"godwit/lab/traffic"
)

// TestLateFlowWhoseAgentIsAway: it waits for an agent that is to start again, for however long, and begins without one
// that nobody starts, as clients do.
func TestLateFlowWhoseAgentIsAway(t *testing.T) {
	const there = "127.77.3.3"
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/host", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"guests":[{"name":"web","addresses":[{"prefix":"%s/8"}]}]}`, there)
	})
	phone, err := traffic.StartClient(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer phone.Close()
	for name, away := range map[string]func(*run){
		"it starts again": func(r *run) {
			r.patience = 0
			answering(t, r, 300*time.Millisecond, mux)
			r.w.agents["a"].awaits()
		},
		"it is gone for good": func(r *run) {
			r.hasWeb(t, mux)
			if _, err := r.guestInfo(t.Context(), "web"); err != nil {
				t.Fatal(err)
			}
			gone := make(chan struct{})
			close(gone)
			r.w.agents["a"] = &hostAgent{host: topo.Host{Name: "a"}, client: api.NewClient(filepath.Join(t.TempDir(), "none.sock")), done: gone}
		},
	} {
		r := aRun()
		r.w.clients, r.flows = map[string]*traffic.Client{"phone": phone}, map[string]*flowTrace{}
		away(r)
		server, err := net.Listen("tcp4", there+":7001")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		tried := make(chan error, 1)
		go func() {
			flow := scenario.Traffic{Name: "late", Client: "phone", Guest: "web", Kind: traffic.Ticks, Family: "v4", Connections: 1}
			tried <- r.startLate(ctx, flow)
			server.Close()
		}()
		if c, err := server.Accept(); err == nil {
			c.Close()
			cancel()
			<-tried
		} else {
			t.Errorf("%s: it did not come: %v", name, <-tried)
		}
		cancel()
	}
}

// TestLateIperf3WithoutAnAgent: the server that each guest has serves where nobody can be asked for another.
func TestLateIperf3WithoutAnAgent(t *testing.T) {
	gone := make(chan struct{})
	close(gone)
	r := aRun()
	flow := func(name string) scenario.Traffic {
		return scenario.Traffic{Name: name, Guest: "web", Kind: traffic.Iperf3}
	}
	r.w.scenario.Traffic = []scenario.Traffic{flow("first"), flow("second")}
	r.w.agents["a"], r.w.where["web"] = &hostAgent{client: api.NewClient(filepath.Join(t.TempDir(), "none.sock")), done: gone}, "a"
	if port, err := r.iperf3Server(t.Context(), flow("first")); port != traffic.PortIperf3 || err != nil {
		t.Errorf("port %d, %v", port, err)
	}
	if port, err := r.iperf3Server(t.Context(), flow("second")); err == nil {
		t.Errorf("port %d of a server that nobody has started", port)
	}
}
