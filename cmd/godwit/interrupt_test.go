package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"godwit/agent/api"
	"godwit/internal/child"
	"godwit/internal/need"
	"godwit/lab"
	"godwit/lab/image"
	"godwit/lab/report"
	"godwit/lab/topo"
	"godwit/migration"
)

// itself is this command as a process that a test can send signals to.
const itself = "godwit-itself"

// asGodwit, where it is set, lets this binary be godwit with all that main does.
const asGodwit = "GODWIT_TEST_AS_GODWIT"

// TestMain lets the processes of a lab, and the command itself, be of this binary.
func TestMain(m *testing.M) {
	if os.Getenv(asGodwit) != "" {
		main()
	}
	child.Register(itself, func(args []string) int { return run(args, os.Stdout, os.Stderr) })
	child.Dispatch()
	os.Exit(m.Run())
}

// The copy takes some ten seconds.
const interruptedScenario = `
name: interrupted
sites:
  - {name: montreal, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: public, rate: 40mbit, delay: 5ms}]}
  - {name: sanjose, guest_net: {v4: 10.2.1.0/24}, uplinks: [{name: public, rate: 40mbit, delay: 5ms}]}
clients:
  - {name: phone, at: internet}
guests:
  - {name: web, site: montreal, memory: 160MiB, disk: 16MiB, run: ["dirty size=32MiB data=random"]}
traffic:
  - {name: ticks, client: phone, guest: web, kind: ticks}
steps:
  - {at: 100ms, migrate: {guest: web, to: sanjose}}
end: {after_last_migration: 1s, timeout: 90s}
expect:
  - {migrations: completed}
`

// labRun is a `godwit lab run` under way.
type labRun struct {
	*testing.T
	cmd       *exec.Cmd
	ended     chan struct{} // closed when it has
	said, out bytes.Buffer  // on stderr, and on stdout; to be read after that
	dir       string        // its --out
	id        string        // the lab's
}

// runs starts the scenario, and returns when it has come to what is asked for.
func runs(t *testing.T, to func(*labRun) bool) *labRun {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "interrupted.yaml")
	if err := os.WriteFile(file, []byte(interruptedScenario), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &labRun{T: t, ended: make(chan struct{}), dir: filepath.Join(dir, "out")}
	r.cmd = child.Command(itself, "lab", "run", file, "--out", r.dir)
	r.cmd.Stdout, r.cmd.Stderr = &r.out, &r.said
	r.cmd.WaitDelay = 10 * time.Second // a process that it left may have these open
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		r.cmd.Wait() //nolint:errcheck // its state tells
		close(r.ended)
	}()
	t.Cleanup(func() {
		r.cmd.Process.Kill() //nolint:errcheck // it may have ended
		if <-r.ended; t.Failed() {
			t.Logf("stdout:\n%s\nstderr:\n%s", r.out.String(), r.said.String())
		}
	})
	for until := time.Now().Add(60 * time.Second); !r.known() || !to(r); time.Sleep(20 * time.Millisecond) {
		select {
		case <-r.ended:
			t.Fatal("it has ended before")
		default:
		}
		if time.Now().After(until) {
			t.Fatal("it does not come to that in 60 s")
		}
	}
	return r
}

// known says whether its lab's id is.
func (r *labRun) known() bool {
	if r.id != "" {
		return true
	}
	found, err := lab.Found()
	if err != nil {
		r.Fatal(err)
	}
	for _, id := range found {
		if pid, ok := lab.RunningLab(id); ok && pid == r.cmd.Process.Pid {
			r.id = id
		}
	}
	return false
}

// ofGuest is in the line of a guest's QEMU, which is no other that an agent asks about itself before.
const ofGuest = "qemu-system-x86_64 -name guest="

// boots says whether the guest's QEMU runs. Time 0 is not yet.
func (r *labRun) boots() bool {
	return strings.Contains(strings.Join(topo.Leftovers(r.id), "\n"), ofGuest)
}

// copies says whether the guest's memory is on its way.
func (r *labRun) copies() bool {
	all, err := api.NewClient(filepath.Join(os.TempDir(), "godwit-lab-"+r.id, "host1", "run", "agent.sock")).Reports(r.Context())
	if err != nil || len(all) != 1 || len(all[0].Phases) == 0 {
		return false
	}
	last := all[0].Phases[len(all[0].Phases)-1]
	return last.Name == migration.Copy && time.Since(time.Unix(0, last.Start)) > 500*time.Millisecond
}

// leftNothing checks that the lab is gone, but for processes that end by themselves as it is taken down.
func (r *labRun) leftNothing() { r.Helper(); r.goneWithin(3 * time.Second) }

func (r *labRun) goneWithin(limit time.Duration) {
	r.Helper()
	for until := time.Now().Add(limit); ; time.Sleep(50 * time.Millisecond) {
		left := topo.Leftovers(r.id)
		if len(left) == 0 {
			return
		}
		if time.Now().After(until) {
			r.Errorf("left behind:\n%s", strings.Join(left, "\n"))
			return
		}
	}
}

// guarded has a test own the machine, and what guests boot.
func guarded(t *testing.T) {
	t.Helper()
	need.QEMU(t)
	if os.Getenv(image.Variable) == "" {
		folder, err := filepath.Abs("../../build/guest")
		if err != nil {
			t.Fatal(err)
		}
		need.File(t, filepath.Join(folder, image.InitrdFile))
		t.Setenv(image.Variable, folder)
	}
	need.Lab(t)
}

// TestInterruptedInTheCopy: a run that is interrupted takes everything down, reports what it has, and
// has failed.
func TestInterruptedInTheCopy(t *testing.T) {
	guarded(t)
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(signal.String(), func(t *testing.T) {
			r := runs(t, (*labRun).copies)
			if err := r.cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			if <-r.ended; r.cmd.ProcessState.ExitCode() != exitFailed {
				t.Errorf("it ended with %v, want status %d", r.cmd.ProcessState, exitFailed)
			}
			r.leftNothing()
			data, err := os.ReadFile(filepath.Join(r.dir, "report.json"))
			if err != nil {
				t.Fatal(err)
			}
			var rep report.Report
			if err := json.Unmarshal(data, &rep); err != nil {
				t.Fatal(err)
			}
			if rep.OK || len(rep.Leftovers) > 0 || len(rep.Migrations) != 1 || rep.Migrations[0].Outcome != report.Aborted ||
				!strings.Contains(strings.Join(rep.Unmet, "\n"), "the run was interrupted") {
				t.Errorf("report: ok %v, unmet %q, left %q, migrations %+v", rep.OK, rep.Unmet, rep.Leftovers, rep.Migrations)
			}
			if _, err := os.Stat(filepath.Join(r.dir, "report.html")); err != nil || !strings.Contains(r.out.String(), "the run was interrupted") {
				t.Errorf("page: %v; it printed %q", err, r.out.String())
			}
		})
	}
}

// TestInterruptedInTheBoot: a run that is interrupted before time 0 has nothing to report. It takes down what it has
// built, and has failed.
func TestInterruptedInTheBoot(t *testing.T) {
	guarded(t)
	r := runs(t, (*labRun).boots)
	if err := r.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	const said = "godwit: interrupted before all was built\n"
	if <-r.ended; r.cmd.ProcessState.ExitCode() != exitFailed || !strings.HasSuffix(r.said.String(), said) {
		t.Errorf("it ended with %v, want status %d, and with %q", r.cmd.ProcessState, exitFailed, said)
	}
	r.leftNothing()
	if _, err := os.Stat(filepath.Join(r.dir, "report.json")); !os.IsNotExist(err) {
		t.Errorf("its report: %v", err)
	}
}

// TestKilledLabIsTakenDown: of a lab that was killed, the process that stands guard over it removes everything: what
// runs, its network, its files.
func TestKilledLabIsTakenDown(t *testing.T) {
	guarded(t)
	r := runs(t, (*labRun).boots)
	r.stands()
	if err := r.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-r.ended
	r.goneWithin(30 * time.Second)
}

// stands checks that the lab has something of all that a lab has.
func (r *labRun) stands() {
	r.Helper()
	all := strings.Join(topo.Leftovers(r.id), "\n")
	for _, what := range []string{ofGuest, "_agent", "_link", "namespace gw" + r.id, "file " + os.TempDir()} {
		if !strings.Contains(all, what) {
			r.Errorf("there is no %q, so this shows nothing:\n%s", what, all)
		}
	}
}

// TestDownAfterAKill: of a lab that was killed in the copy, with the process that cleans up after it,
// everything stays, and `godwit lab down` removes it.
func TestDownAfterAKill(t *testing.T) {
	guarded(t)
	r := runs(t, (*labRun).copies)
	reaper := r.reaper()
	for _, pid := range []int{reaper, r.cmd.Process.Pid} {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	<-r.ended
	r.stands()
	down := child.Command(itself, "lab", "down", r.id)
	if said, err := down.CombinedOutput(); err != nil || !strings.Contains(string(said), "removed lab "+r.id) {
		t.Errorf("lab down: %v: %s", err, said)
	}
	r.leftNothing()
}

// reaper is the process that removes what a killed lab leaves.
func (r *labRun) reaper() int {
	r.Helper()
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range all {
		data, err := os.ReadFile(path)
		if words := strings.Split(string(data), "\x00"); err == nil && len(words) > 2 && words[1] == "_reaper" && words[2] == r.id {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			if err == nil {
				return pid
			}
		}
	}
	r.Fatal("nobody cleans up after the lab")
	return 0
}

// said is what was written so far.
type said struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *said) lines() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Count(s.text.String(), endsAlready+"\n")
}

// TestEndedTwice: who presses Ctrl-C again, while a command takes away what it has made, is told that it ends; once is
// enough for most.
func TestEndedTwice(t *testing.T) {
	var out said
	stop := answerSecondSignal(&out, []os.Signal{syscall.SIGUSR1})
	came := make(chan os.Signal, 4)
	signal.Notify(came, syscall.SIGUSR1)
	defer signal.Stop(came)
	for presses, want := range []int{0, 0, 1, 2} {
		if presses > 0 {
			if err := syscall.Kill(os.Getpid(), syscall.SIGUSR1); err != nil {
				t.Fatal(err)
			}
			<-came                            // one that waits is not sent twice
			time.Sleep(50 * time.Millisecond) // in which something else could be said
		}
		for until := time.Now().Add(10 * time.Second); out.lines() < want && time.Now().Before(until); time.Sleep(time.Millisecond) {
		}
		if got := out.lines(); got != want {
			t.Errorf("pressed %d times: told %d times, want %d", presses, got, want)
		}
	}
	stop()
}
