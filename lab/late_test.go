package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"godwit/agent/api"
	"godwit/agent/record"
	"godwit/lab/report"
	"godwit/lab/scenario"
	"godwit/lab/topo"
	"godwit/lab/traffic"
	"godwit/migration"
)

// TestAbortTooLate: an abort that is due when the migration has just ended has nothing to do;
// one of a guest that has not been asked to move is a mistake.
func TestAbortTooLate(t *testing.T) {
	r := aRun()
	if err := r.abort(t.Context(), "web", nil); err == nil {
		t.Error("no migration was asked for, and nobody says so")
	}
	_, done := r.queued("web")
	done()
	if err := r.abort(t.Context(), "web", nil); err != nil {
		t.Error(err)
	}
}

// TestWhyAnAbortWasRefused: the report tells what came of an abort that was too late, of whichever kind.
func TestWhyAnAbortWasRefused(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/migrations/{id}/abort", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusConflict)
		w.Write([]byte(`{"code":"busy","text":"abort m-00000001: it can only go forward"}`)) //nolint:errcheck // the client tells
	})
	r := aRun()
	r.hasWeb(t, mux)
	m := r.newMove(&scenario.Migrate{Guest: "web", To: "a"})
	m.id, m.report = "m-00000001", &record.Report{Outcome: migration.Completed, Ended: 1, Notes: []string{"an agent's"}}
	close(m.answered)
	if err := r.abort(t.Context(), "web", nil); err != nil {
		t.Error(err)
	}
	close(m.done)
	_, done := r.queued("web")
	done()
	if err := r.abort(t.Context(), "web", nil); err != nil {
		t.Error(err)
	}
	got := r.assemble(t.Context(), false).Migrations[0].Notes
	want := []string{"an agent's", "abort m-00000001: it can only go forward", "abort web: its migration has its outcome already"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// TestAbortOfTheRefused: of two migrations that were asked for at once an abort is about the first, also where that is
// refused; the report tells it.
func TestAbortOfTheRefused(t *testing.T) {
	r := aRun()
	r.hasWeb(t, http.NewServeMux())
	m := r.newMove(&scenario.Migrate{Guest: "web", To: "a"})
	_, done := r.queued("web")
	defer done()
	m.refuse(&migration.Problem{Code: migration.CodeUsage, Text: "it is on a already"})
	close(m.answered)
	if err := r.abort(t.Context(), "web", m); err != nil {
		t.Error(err)
	}
	close(m.done)
	got := r.assemble(t.Context(), false).Migrations[0]
	if want := []string{"abort web: this migration was refused before it could be called off"}; got.Outcome != report.Refused || !slices.Equal(got.Notes, want) {
		t.Errorf("%s %q", got.Outcome, got.Notes)
	}
}

// answering is what an agent's socket answers from a time on; before, nobody does.
func answering(t *testing.T, r *run, after time.Duration, mux http.Handler) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "agent.sock")
	r.w.agents["a"], r.w.where["web"] = &hostAgent{host: topo.Host{Name: "a"}, client: api.NewClient(socket)}, "a"
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	late := time.AfterFunc(after, func() {
		if listener, err := net.Listen("unix", socket); err == nil {
			server.Serve(listener) //nolint:errcheck // it ends with the test
		}
	})
	t.Cleanup(func() { late.Stop(); server.Close() })
}

// TestAbortOfAnAgentThatIsAway: an agent that is being started again is asked when it is there.
func TestAbortOfAnAgentThatIsAway(t *testing.T) {
	var asked atomic.Int32
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/migrations/{id}/abort", func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	r := aRun()
	answering(t, r, 300*time.Millisecond, mux)
	m := &move{guest: "web", from: "a", id: "m-00000001", answered: make(chan struct{}), done: make(chan struct{})}
	close(m.answered)
	if err := r.abort(t.Context(), "web", m); err != nil || asked.Load() != 1 {
		t.Errorf("%v, asked %d times", err, asked.Load())
	}
}

// TestStepsAfterAnAbort: they come when they are due, not when it has been undone.
func TestStepsAfterAnAbort(t *testing.T) {
	undone := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/migrations/{id}/abort", func(http.ResponseWriter, *http.Request) { <-undone })
	r := aRun()
	r.hasWeb(t, mux)
	m := &move{guest: "web", from: "a", id: "m-00000001", answered: make(chan struct{}), done: make(chan struct{})}
	close(m.answered)
	r.moves = []*move{m}
	returned := make(chan struct{})
	go func() {
		r.do(t.Context(), &scenario.Step{Abort: &scenario.Abort{Guest: "web"}})
		close(returned)
	}()
	select {
	case <-returned:
	case <-time.After(5 * time.Second):
		t.Error("the step lasts as long as the undoing")
	}
	close(undone)
	r.wg.Wait()
}

// TestStepsAboutAGuestWhoseTurnComes: of an evacuation's guests the last ones begin to move late.
func TestStepsAboutAGuestWhoseTurnComes(t *testing.T) {
	aborts, looked := make(chan struct{}, 10), make(chan struct{})
	looks := sync.OnceFunc(func() { close(looked) })
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/migrations/{id}/abort", func(http.ResponseWriter, *http.Request) { aborts <- struct{}{} })
	mux.HandleFunc("GET /v1/processes", func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte("{}")) //nolint:errcheck // the client tells
		looks()
	})
	r := aRun()
	r.hasWeb(t, mux)
	_, done := r.queued("web")
	r.do(t.Context(), &scenario.Step{Abort: &scenario.Abort{Guest: "web"}})
	r.do(t.Context(), &scenario.Step{Kill: &scenario.Kill{QEMU: "web", Side: "destination"}})
	time.Sleep(50 * time.Millisecond)
	m := &move{guest: "web", from: "a", to: "a", id: "m-00000001", answered: make(chan struct{}), done: make(chan struct{})}
	close(m.answered)
	r.mu.Lock()
	r.moves = append(r.moves, m)
	r.mu.Unlock()
	<-aborts // else the test's time is over
	<-looked
	close(m.done)
	done()
	r.wg.Wait()
	// Of the QEMU there is to say that there was none.
	if len(aborts) != 0 || len(r.troubles) != 1 || !strings.Contains(r.troubles[0], "no QEMU of web") {
		t.Errorf("aborted %d times, troubles %q", 1+len(aborts), r.troubles)
	}
}

// TestMigrateWhoseAnswerIsLost: what an agent began before it was killed is the migration that was asked for.
func TestMigrateWhoseAnswerIsLost(t *testing.T) {
	for reports, want := range map[string]string{
		`[{"id":"m-00000007","guest":"db"},{"id":"m-00000008","guest":"web"}]`: "m-00000008",
		`[{"id":"m-00000007","guest":"db"}]`:                                   "",
	} {
		mux := http.NewServeMux()
		mux.HandleFunc("POST /v1/migrations", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		mux.HandleFunc("GET /v1/migrations", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(reports)) }) //nolint:errcheck // the client tells
		r := aRun()
		r.hasWeb(t, mux)
		ctx, cancel := context.WithCancel(t.Context())
		m := r.newMove(&scenario.Migrate{Guest: "web", To: "a"})
		r.request(ctx, m)
		cancel()
		r.wg.Wait()
		if m.id != want || (m.refusal == nil) != (want != "") {
			t.Errorf("%s: migration %q, refused: %v", reports, m.id, m.refusal)
		}
	}
}

// TestAgentThatDoesNotComeBack: that it is gone for good ends what waits for it, and is in the report.
func TestAgentThatDoesNotComeBack(t *testing.T) {
	r := aRun()
	a := &hostAgent{host: topo.Host{Name: "a"}, dir: "/dev/null/none", done: make(chan struct{}), cmd: &exec.Cmd{}}
	close(a.done)
	if !a.awaits() || a.goneForGood() {
		t.Fatal("it is to be started again")
	}
	r.trouble(&scenario.Step{Kill: &scenario.Kill{Agent: "a"}}, a.startAgain(t.Context(), time.Millisecond))
	if !a.goneForGood() || len(r.troubles) != 1 {
		t.Errorf("gone for good: %v, %q", a.goneForGood(), r.troubles)
	}
}

// TestLeasesOfAnAgentThatIsGone: nobody is told that one that a step killed for good does not answer; of another, one is.
func TestLeasesOfAnAgentThatIsGone(t *testing.T) {
	r := aRun()
	var told []string
	r.opts.Tell = func(line string) { told = append(told, line) }
	a := &hostAgent{host: topo.Host{Name: "a"}, client: api.NewClient(filepath.Join(t.TempDir(), "none.sock")), done: make(chan struct{})}
	r.w.agents["a"] = a
	if r.endLeases(); len(told) != 1 {
		t.Errorf("of one that runs: told %q", told)
	}
	close(a.done)
	if r.endLeases(); len(told) != 1 {
		t.Errorf("of one that is gone: told %q", told[1:])
	}
}

// TestAgentThatIsKilledAsItComesUp: that is no trouble, nor does it end the plan of who killed it; nor is the end of a
// run a trouble.
func TestAgentThatIsKilledAsItComesUp(t *testing.T) {
	done := make(chan struct{})
	a := &hostAgent{host: topo.Host{Name: "a"}, client: api.NewClient(filepath.Join(t.TempDir(), "none.sock")), done: done, killed: done}
	a.awaits()
	close(done)
	if err := a.awaitReady(t.Context(), done); err == nil || !a.wasKilled(done) || a.goneForGood() {
		t.Errorf("%v, killed %v, gone for good %v", err, a.wasKilled(done), a.goneForGood())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.awaitReady(ctx, make(chan struct{})); !errors.Is(err, context.Canceled) {
		t.Errorf("the run has ended: %v", err)
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

// TestServerThatListensLate: of a guest in which nobody can be asked it is not known when what serves is up: its flows
// are tried until it is.
func TestServerThatListensLate(t *testing.T) {
	const there = "127.77.3.2"
	for agent, again := range map[string]bool{"godwit": false, "dhcp": true} {
		r := aRun()
		r.w.scenario.Guests = []scenario.Guest{{Name: "web", Agent: agent}}
		phone, err := traffic.StartClient(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		defer phone.Close()
		r.w.clients = map[string]*traffic.Client{"phone": phone}
		r.flows, r.results = map[string]*flowTrace{}, map[string]traffic.Result{}
		asked := make(chan struct{}, 1<<10)
		mux := http.NewServeMux()
		mux.HandleFunc("GET /v1/host", func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"guests":[{"name":"web","addresses":[{"prefix":"%s/8"}]}]}`, there)
			asked <- struct{}{}
		})
		r.hasWeb(t, mux)
		ctx, cancel := context.WithCancel(t.Context())
		tried := make(chan error, 1)
		go func() {
			tried <- r.startFirst(ctx, scenario.Traffic{Name: "t", Client: "phone", Guest: "web", Kind: traffic.Ticks, Family: "v4", Connections: 1})
		}()
		if !again {
			if err := <-tried; err == nil || !strings.Contains(err.Error(), "connection refused") {
				t.Errorf("%s: %v", agent, err)
			}
			cancel()
			continue
		}
		<-asked
		<-asked // it was refused, and tries again
		server, err := net.Listen("tcp4", there+":7001")
		if err != nil {
			t.Fatal(err)
		}
		if c, err := server.Accept(); err != nil { // else the test's time is over
			t.Error(err)
		} else {
			c.Close()
		}
		cancel()
		if err := <-tried; err == nil {
			t.Error("it has begun with nobody")
		}
		server.Close()
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
