package lab

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"godwit/agent"
	"godwit/lab/scenario"
	"godwit/lab/topo"
	"godwit/migration"
)

// aRun is a run with steps and no network: evacuating a host without guests is nothing.
func aRun(steps ...scenario.Step) *run {
	s := &scenario.Scenario{
		Sites: []scenario.Site{{Name: "a", Hosts: 1}}, Guests: []scenario.Guest{{Name: "web", Site: "a"}},
		Steps: steps, End: scenario.End{Timeout: time.Minute},
	}
	return &run{
		w: &world{scenario: s, topo: &topo.Topo{}, agents: map[string]*hostAgent{}, where: map[string]string{}}, opts: Options{Tell: func(string) {}},
		zero: time.Now(), reached: map[int]bool{}, queue: map[string]chan struct{}{},
	}
}

// A step that is due some time after a phase is not cut off by the end of the run: it is
// awaited. Where the run may not wait any longer, it was never reached.
func TestTheEndWaitsForStepsAfterAPhase(t *testing.T) {
	step := scenario.Step{At: scenario.At{Guest: "web", Phase: "settle", Plus: 100 * time.Millisecond}, Evacuate: &scenario.Evacuate{Host: "a", To: "a"}}
	begun := make(chan struct{})
	close(begun)
	at := func(r *run, ctx context.Context) { r.phaseBegan(ctx, &move{guest: "web"}, migration.Settle) }

	r := aRun(step)
	at(r, t.Context())
	if r.awaitEnd(t.Context(), begun, nil) || len(r.steps) != 1 || len(r.unreached()) != 0 {
		t.Errorf("the run ended with %d of 1 steps done, unreached: %v", len(r.steps), r.unreached())
	}

	step.At.Plus = time.Hour
	r = aRun(step)
	ctx, cancel := context.WithCancel(t.Context())
	at(r, ctx)
	limit := make(chan time.Time, 1)
	limit <- time.Now()
	timedOut := r.awaitEnd(ctx, begun, limit)
	cancel()
	r.wg.Wait()
	if !timedOut || len(r.steps) != 0 || len(r.unreached()) != 1 {
		t.Errorf("timed out %v, %d steps done, unreached: %v", timedOut, len(r.steps), r.unreached())
	}
}

// An abort that is due together with its migration waits until the agent has given that
// its id: it is not lost, and no step that went wrong.
func TestAbortOfAMigrationJustAskedFor(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	late := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/migrations", func(w http.ResponseWriter, _ *http.Request) {
		<-late
		w.Write([]byte(`{"id":"m-00000001"}`)) //nolint:errcheck // the client tells
	})
	mux.HandleFunc("POST /v1/migrations/{id}/abort", func(_ http.ResponseWriter, q *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, q.PathValue("id"))
	})
	socket := filepath.Join(t.TempDir(), "agent.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go server.Serve(listener) //nolint:errcheck // it ends with the test
	t.Cleanup(func() { server.Close() })

	r := aRun()
	r.w.agents["a"] = &hostAgent{host: topo.Host{Name: "a"}, client: agent.NewClient(socket)}
	r.w.where["web"] = "a"
	ctx, cancel := context.WithCancel(t.Context())
	r.queueMigrate(ctx, &scenario.Migrate{Guest: "web", To: "a"})
	aborted := make(chan error, 1)
	go func() { aborted <- r.abort(ctx, "web") }()
	time.Sleep(20 * time.Millisecond)
	close(late)
	if err := <-aborted; err != nil {
		t.Error(err)
	}
	cancel()
	r.wg.Wait()
	mu.Lock()
	defer mu.Unlock()
	if len(asked) != 1 || asked[0] != "m-00000001" {
		t.Errorf("asked to abort %q", asked)
	}
}
