package lab

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"godwit/agent/api"
	"godwit/agent/evacuate"
	"godwit/internal/need"
	"godwit/lab/scenario"
	"godwit/lab/topo"
	"godwit/netstate/netns"
)

// namedProcess is a process in a namespace whose command line names a guest as QEMU's does.
func namedProcess(t *testing.T, namespace, name string) *exec.Cmd {
	t.Helper()
	// It has no child: one would have the same command line until it is another program.
	cmd := exec.Command("sh", "-c", "read never", "-name", "guest="+name+",debug-threads=on")
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := netns.Start(namespace, cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill() //nolint:errcheck // it may have ended
		cmd.Wait()         //nolint:errcheck // as it was killed
	})
	need.Started(t, cmd)
	return cmd
}

// TestKillOfAQEMUWithoutItsAgent: a killed agent takes no guest with it, so there is one to kill.
func TestKillOfAQEMUWithoutItsAgent(t *testing.T) {
	need.Root(t)
	namespace := "t-kill-" + newID()
	if err := netns.Create(namespace); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { netns.Delete(namespace) }) //nolint:errcheck // of a test
	r := aRun()
	r.w.agents["a"] = &hostAgent{host: topo.Host{Name: "a", Namespace: namespace}, client: api.NewClient(t.TempDir() + "/none.sock")}
	r.w.where["web"] = "a"
	step := &scenario.Step{Kill: &scenario.Kill{QEMU: "web", Side: "source"}}
	if err := r.kill(t.Context(), step); !errors.Is(err, errNoQEMU) {
		t.Errorf("of a guest that is not there: %v", err)
	}
	other, web := namedProcess(t, namespace, "web2"), namedProcess(t, namespace, "web")
	if err := r.kill(t.Context(), step); err != nil {
		t.Fatal(err)
	}
	web.Wait() //nolint:errcheck // its state tells
	if status := web.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() {
		t.Errorf("ended with %v", status)
	}
	if err := other.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("another guest's: %v", err)
	}
	ended, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	<-ended.Done()
	if err := r.kill(ended, step); err == nil || errors.Is(err, errNoQEMU) {
		t.Errorf("of a run that has ended: %v", err)
	}
}

// TestKillAtTheSourceOfAMoveThatIsOver: a step that waited for a phase is about that migration: the
// guest that has moved meanwhile is not at its source.
func TestKillAtTheSourceOfAMoveThatIsOver(t *testing.T) {
	step := scenario.Step{At: scenario.At{Guest: "web", Phase: "settle"}, Kill: &scenario.Kill{QEMU: "web", Side: "source"}}
	r := aRun(step)
	aHost(t, r, func() string { return `{}` })
	source := r.w.agents["a"]
	var asked atomic.Bool
	aHost(t, r, func() string { asked.Store(true); return `{}` })
	r.w.agents["a"], r.w.agents["b"] = source, r.w.agents["a"]
	r.w.where["web"] = "b"
	m := &move{guest: "web", from: "a", to: "b", done: make(chan struct{})}
	close(m.done)
	r.phaseBegan(t.Context(), m, "settle", time.Now())
	r.wg.Wait()
	if len(r.steps) != 1 || len(r.troubles) != 0 || asked.Load() || len(m.remarks) != 1 {
		t.Errorf("%d steps, troubles %q, noted %q, looked for at the destination: %v", len(r.steps), r.troubles, m.remarks, asked.Load())
	}
}

// TestKillOfAnySide: a step that names no side is about the source's QEMU of the migration whose phase it waited for, or
// that is under way; by the clock, and where there is none, about the one that the guest has.
func TestKillOfAnySide(t *testing.T) {
	for _, c := range []struct {
		name   string
		at     string // where the guest is
		moving bool   // home again, from b to a
		by     string // of whose phase the step waited for one: web's first migration's, from a to b, or another guest's
		looks  string // for its QEMU, which is nowhere
		want   string // in the error
	}{
		{"after it moved", "b", false, "", "b", "no QEMU of web on b"},
		{"some time after a phase", "b", false, "web", "a", ""},
		{"in a phase of another guest", "b", false, "db", "", ""},
		{"while it moves again", "b", true, "", "b", ""},
		{"some time after a phase, while it moves again", "b", true, "web", "a", ""},
	} {
		r := aRun()
		looks := ""
		for _, host := range []string{"b", "a"} {
			aHost(t, r, func() string { looks += host; return `{}` })
			r.w.agents[host] = r.w.agents["a"]
		}
		r.w.agents["b"].host.Name = "b"
		r.w.where["web"] = c.at
		first := &move{guest: "web", from: "a", to: "b", done: make(chan struct{})}
		close(first.done)
		r.moves, r.queue["web"] = []*move{first}, first.done
		if c.moving {
			r.moves = append(r.moves, &move{guest: "web", from: "b", to: "a", done: make(chan struct{})})
		}
		step := &scenario.Step{At: scenario.At{Guest: c.by}, Kill: &scenario.Kill{QEMU: "web"}}
		if c.by == "web" {
			r.by[step] = first
		}
		err := r.kill(t.Context(), step)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) || looks != c.looks {
			t.Errorf("%s: %v, looked for it on %q", c.name, err, looks)
		}
	}
}

// TestKillBetweenMoves: a step by the clock is about the guest's last migration where none is under way. The one
// QEMU that there is then is at the side at which the guest is. One that is to move has its source's.
func TestKillBetweenMoves(t *testing.T) {
	for _, test := range []struct {
		name, side, at string
		moves          bool
		asked          bool   // to move, or to move again, as by an evacuation that is being planned
		looks          bool   // for a process to end
		want           string // in the error
	}{
		{"before any", "destination", "a", false, false, false, "has no destination"},
		{"before any", "source", "a", false, false, true, "no QEMU"},
		{"asked to move", "source", "a", false, true, true, "no QEMU"},
		{"after it moved", "source", "b", true, false, false, ""},
		{"after it moved", "destination", "b", true, false, true, "no QEMU"},
		{"after it moved, and asked to move again", "source", "b", true, true, true, "no QEMU"},
		{"after it was called off", "destination", "a", true, false, false, ""},
		{"after it was called off", "source", "a", true, false, true, "no QEMU"},
	} {
		r := aRun()
		var asked atomic.Bool
		for _, host := range []string{"b", "a"} {
			aHost(t, r, func() string { asked.Store(true); return `{}` })
			r.w.agents[host] = r.w.agents["a"]
		}
		r.w.where["web"] = test.at
		if test.moves {
			m := &move{guest: "web", from: "a", to: "b", done: make(chan struct{})}
			close(m.done)
			r.moves = append(r.moves, m)
			r.queue["web"] = m.done
		}
		if test.asked {
			r.queued("web")
		}
		err := r.kill(t.Context(), &scenario.Step{Kill: &scenario.Kill{QEMU: "web", Side: test.side}})
		if (err == nil) != (test.want == "") || asked.Load() != test.looks {
			t.Errorf("%s, side %s: %v, looked for it: %v", test.name, test.side, err, asked.Load())
		}
		// What a step did in vain is in the report.
		if noted := test.moves && len(r.moves[0].remarks) == 1; noted != (test.moves && !test.looks) {
			t.Errorf("%s, side %s: noted %v", test.name, test.side, noted)
		}
	}
}

// TestGuestThatIsToBootAgain: it has not ended for those who ask for it, until it has booted or never will.
func TestGuestThatIsToBootAgain(t *testing.T) {
	r := aRun()
	web := exec.Command("sleep", "60")
	if err := web.Start(); err != nil {
		t.Fatal(err)
	}
	step := &scenario.Step{Kill: &scenario.Kill{QEMU: "web", Restart: true, RestartAfter: time.Hour}}
	if err := r.killProcess(t.Context(), step, nil, web.Process.Pid); err != nil {
		t.Fatal(err)
	}
	web.Wait() //nolint:errcheck // it was killed
	if r.stays("web") || !r.stays("db") {
		t.Errorf("its boot is to come: it stays %v, another %v", r.stays("web"), r.stays("db"))
	}
	close(r.ending)
	r.wg.Wait()
	if !r.stays("web") || len(r.troubles) != 0 {
		t.Errorf("the run has ended: it stays %v, %q", r.stays("web"), r.troubles)
	}
}

// TestMoveOfAGuestThatIsToBootAgain: a step that moves it waits until it has booted, or never will.
func TestMoveOfAGuestThatIsToBootAgain(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none.sock")
	for name, step := range map[string]scenario.Step{
		"migrate":  {Migrate: &scenario.Migrate{Guest: "web", To: "a"}},
		"evacuate": {Evacuate: &scenario.Evacuate{Host: "a", To: "a"}}, // which has nobody to ask: that is told
	} {
		synctest.Test(t, func(t *testing.T) {
			r := aRun(step)
			r.w.agents["a"], r.w.where["web"] = &hostAgent{host: topo.Host{Name: "a"}, client: api.NewClient(none), done: gone()}, "a"
			moved := func() bool {
				r.mu.Lock()
				defer r.mu.Unlock()
				return len(r.moves)+len(r.troubles) > 0
			}
			booted := r.toBoot("web", r.w.agents["a"])
			r.do(t.Context(), &r.w.scenario.Steps[0])
			time.Sleep(time.Minute)
			if moved() || len(r.unreached()) != 0 {
				t.Errorf("%s: it moves as it is to boot again", name)
			}
			booted()
			r.wg.Wait()
			if !moved() || r.pending != 0 {
				t.Errorf("%s: it does not move once it has booted again; %d to come", name, r.pending)
			}
			r.toBoot("web", r.w.agents["a"])
			r.moves, r.troubles = nil, nil
			r.do(t.Context(), &r.w.scenario.Steps[0])
			close(r.ending)
			r.wg.Wait()
			if len(r.moves) != 0 || len(r.troubles)+len(r.unreached()) != 1 {
				t.Errorf("%s: the run ended first: %d moves, %q, %q", name, len(r.moves), r.troubles, r.unreached())
			}
		})
	}
}

// TestEvacueeThatIsToBootAgain: one that waits for others to leave first, and is killed meanwhile, leaves once it has
// booted.
func TestEvacueeThatIsToBootAgain(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none.sock")
	synctest.Test(t, func(t *testing.T) {
		r := aRun()
		r.w.agents["a"], r.w.where["web"] = &hostAgent{host: topo.Host{Name: "a"}, client: api.NewClient(none), done: gone()}, "a"
		booted := r.toBoot("web", r.w.agents["a"])
		byName := map[string]evacuee{"web": {scenario.Guest{Name: "web"}, r.queuedTogether("web")[0]}}
		left := make(chan error, 1)
		go func() {
			left <- r.moveChosen(t.Context(), "a", []evacuate.Move{{Guest: "web", To: []evacuate.Destination{{Host: "a"}}}}, byName)
		}()
		time.Sleep(time.Minute)
		if n := len(r.movesNow()); n != 0 {
			t.Errorf("%d moves of a guest that is to boot again", n)
		}
		booted()
		if err := <-left; err != nil || len(r.movesNow()) != 1 {
			t.Errorf("it has booted: %v, %d moves", err, len(r.movesNow()))
		}
	})
}

// TestNoBootIsAwaitedOfAGuestThatRuns: where a QEMU of a guest was killed that it did not have, as at a destination, or at
// a source that it had left, nothing waits for its boot.
func TestNoBootIsAwaitedOfAGuestThatRuns(t *testing.T) {
	for _, c := range []struct {
		at, pids string // where the guest is, and what runs there
		want     bool
	}{
		{"b", `{"web":1}`, false},
		{"b", `{}`, true}, // it was lost
		{"a", `{"web":1}`, true},
	} {
		r := aRun()
		killed := &hostAgent{host: topo.Host{Name: "a"}}
		aHost(t, r, func() string { return c.pids })
		r.w.agents["b"], r.w.agents["a"], r.w.where["web"] = r.w.agents["a"], killed, c.at
		over := r.toBoot("web", killed)
		if got := r.isToBoot(t.Context(), "web"); got != c.want {
			t.Errorf("on %s, which has %s: %v", c.at, c.pids, got)
		}
		if over(); r.isToBoot(t.Context(), "web") {
			t.Errorf("on %s, which has %s: it waits on when that is over", c.at, c.pids)
		}
	}
}

// TestTheEndWaitsForAnAgentThatIsToStartAgain: one that is killed last is started again before the run ends.
func TestTheEndWaitsForAnAgentThatIsToStartAgain(t *testing.T) {
	process := exec.Command("true")
	if err := process.Run(); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		r := aRun(scenario.Step{Kill: &scenario.Kill{Agent: "a", Restart: true, RestartAfter: 30 * time.Second}})
		a := &hostAgent{
			host: topo.Host{Name: "a"}, dir: "/dev/null/none", // where it cannot start, which is told
			client: api.NewClient(filepath.Join(t.TempDir(), "none.sock")), cmd: process, done: make(chan struct{}),
		}
		close(a.done)
		r.w.agents["a"] = a
		if r.carryOut(t.Context()) || len(r.troubles) != 1 || !strings.Contains(r.troubles[0], "kill agent a: mkdir") {
			t.Errorf("troubles %q, want that of its start", r.troubles)
		}
	})
}
