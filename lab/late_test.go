package lab

import (
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"godwit/lab/scenario"
	"godwit/lab/traffic"
)

// TestAbortTooLate: an abort that is due when the migration has just ended has nothing to do;
// one of a guest that has not been asked to move is a mistake.
func TestAbortTooLate(t *testing.T) {
	r := aRun()
	if err := r.abort(t.Context(), "web"); err == nil {
		t.Error("no migration was asked for, and nobody says so")
	}
	_, done := r.turn("web")
	done()
	if err := r.abort(t.Context(), "web"); err != nil {
		t.Error(err)
	}
}

// aHost is host a of a run, with an agent that has these QEMUs.
func aHost(t *testing.T, r *run, pids func() string) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/processes", func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte(pids())) //nolint:errcheck // the client tells
	})
	r.hasWeb(t, mux)
}

// TestFlowThatBeginsLate: the run waits for it as it waits for a step of that time, and
// lets it run.
func TestFlowThatBeginsLate(t *testing.T) {
	r := aRun()
	r.w.scenario.Traffic = []scenario.Traffic{{Name: "late", Guest: "web", Start: 150 * time.Millisecond}}
	r.w.scenario.End.AfterLastMigration = 50 * time.Millisecond
	aHost(t, r, func() string { return "{}" }) // where it is not told: the flow cannot start
	if r.carryOut(t.Context()) || len(r.troubles) != 1 || time.Since(r.zero) < 200*time.Millisecond {
		t.Errorf("the run ended after %v, troubles %q", time.Since(r.zero), r.troubles)
	}
}

// TestLateFlowAtTheEnd: a flow that does not come to begin makes the run no longer than its timeout.
func TestLateFlowAtTheEnd(t *testing.T) {
	const there = "127.77.3.1"
	silent, err := net.Listen("tcp4", there+":7001")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	r := aRun()
	r.w.scenario.Traffic = []scenario.Traffic{{Name: "late", Client: "phone", Guest: "web", Kind: traffic.Ticks, Family: "v4", Connections: 1, Start: 100 * time.Millisecond}}
	r.w.scenario.End.Timeout = 500 * time.Millisecond
	phone, err := traffic.StartClient(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer phone.Close()
	r.w.clients = map[string]*traffic.Client{"phone": phone}
	r.flows, r.results = map[string]*flowTrace{}, map[string]traffic.Result{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/host", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"guests":[{"name":"web","addresses":[{"prefix":"%s/8"}]}]}`, there)
	})
	r.hasWeb(t, mux)
	began := time.Now()
	if !r.carryOut(t.Context()) {
		t.Error("it did not meet its timeout")
	}
	if took := time.Since(began); took > 10*time.Second || len(r.troubles) != 1 || !strings.Contains(r.troubles[0], "start traffic late: ticks to "+there+": the run ended") {
		t.Errorf("it took %v: %q", took, r.troubles)
	}
}

// TestKillOfAQEMUThatIsNotThere: the destination's is waited for as long as the migration
// lasts, the source's has ended already.
func TestKillOfAQEMUThatIsNotThere(t *testing.T) {
	kill := func(side string) *scenario.Step {
		return &scenario.Step{Kill: &scenario.Kill{QEMU: "web", Side: side}}
	}
	r, m := aRun(), &move{guest: "web", from: "a", to: "a", done: make(chan struct{})}
	r.moves = []*move{m}
	process := exec.CommandContext(t.Context(), "sleep", "60")
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int32
	aHost(t, r, func() string {
		if asked.Add(1) < 4 {
			return "{}"
		}
		return fmt.Sprintf(`{"web":%d}`, process.Process.Pid)
	})
	r.do(t.Context(), kill("source"))
	r.do(t.Context(), kill("destination"))
	r.wg.Wait()
	_ = process.Wait()
	if status := process.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || len(r.troubles) != 0 {
		t.Errorf("ended with %v, troubles %q", status, r.troubles)
	}

	aHost(t, r, func() string { return "{}" })
	r.do(t.Context(), kill("destination"))
	close(m.done)
	r.wg.Wait()
	if len(r.troubles) != 1 {
		t.Errorf("of a QEMU that never was: %q", r.troubles)
	}
}
