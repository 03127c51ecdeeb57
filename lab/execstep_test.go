package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"godwit/agent/api"
	"godwit/lab/scenario"
	"godwit/vm/guest"
)

// aGuestHere has the commands for guest web run on this machine.
func aGuestHere(t *testing.T, r *run) { aSlowGuestHere(t, r, -1) }

// aSlowGuestHere kills the first command after some of its lines, as a guest does with one that takes too long; below
// 0: not.
func aSlowGuestHere(t *testing.T, r *run, lines int) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/guests/web/call", func(w http.ResponseWriter, q *http.Request) {
		var call api.GuestCall
		var e guest.Exec
		if json.NewDecoder(q.Body).Decode(&call) != nil || json.Unmarshal(call.Params, &e) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		killed := lines >= 0
		if killed {
			e.Command, lines = strings.Join(strings.SplitAfter(e.Command, "\n")[:lines], ""), -1
		}
		cmd := exec.CommandContext(q.Context(), "sh", "-c", e.Command)
		out, _ := cmd.Output()
		said := guest.Executed{Exit: cmd.ProcessState.ExitCode(), Stdout: string(out)}
		if killed {
			said.Exit, said.TimedOut = -1, true
		}
		json.NewEncoder(w).Encode(said) //nolint:errcheck // the client tells
	})
	r.hasWeb(t, mux)
}

// execsSoFar is where a test's commands count from: one that still runs writes into its own folder alone.
var execsSoFar = os.Getpid() * 1000

// TestExecStep: a command's end is told; that of a guest that was booted again under it, which has
// nothing of it any more, is not waited for.
func TestExecStep(t *testing.T) {
	for _, c := range []struct {
		command string
		want    string
	}{
		{"true", ""},
		{"false", `exit 1 of "false"`},
		{"false " + strings.Repeat("x", 100), strings.Repeat("x", 74) + `…"`},
		{"echo no room; exit 3", "exit 3 of \"echo no room; exit 3\": no room"},
		{"echo 'it''s so' \"$0\" >&2; exit 4", ": its so"},
		{"kill -9 0", "exit 137"},
		{"kill -9 $$", "exit 137"},
		{"true ) && ( true", "exit 2"},
		{"echo 'unclosed", "exit 2"},
		{"cd /; pwd >/dev/null; trap 'exit 5' EXIT", "exit 5"},
		{`rm -r "${0%/run}"`, "the guest was booted again under it"},
	} {
		r := aRun()
		aGuestHere(t, r)
		execsSoFar++
		r.execs = execsSoFar
		dir := fmt.Sprintf("/tmp/godwit-exec-%d", r.execs+1)
		t.Cleanup(func() { os.RemoveAll(dir) })
		err := r.execStep(t.Context(), &scenario.Exec{Guest: "web", Command: c.command})
		os.RemoveAll(dir)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) || err != nil && strings.HasSuffix(err.Error(), ": ") {
			t.Errorf("%s: %v, want %q", c.command, err, c.want)
		}
	}
}

// TestCommandOfASlowGuest: a command is begun once, wherever the call that begins it was killed.
func TestCommandOfASlowGuest(t *testing.T) {
	for lines := range strings.Count(beginCommand, "\n") + 2 {
		execsSoFar++
		number := execsSoFar
		t.Run(strconv.Itoa(lines), func(t *testing.T) {
			t.Parallel()
			r := aRun()
			aSlowGuestHere(t, r, lines)
			r.execs = number
			dir, said := fmt.Sprintf("/tmp/godwit-exec-%d", number+1), filepath.Join(t.TempDir(), "said")
			t.Cleanup(func() { os.RemoveAll(dir) })
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			err := r.execStep(ctx, &scenario.Exec{Guest: "web", Command: "echo once >>" + said})
			if got, _ := os.ReadFile(said); err != nil || string(got) != "once\n" {
				t.Errorf("%v, it wrote %q", err, got)
			}
		})
	}
}

// TestCommandIsBegunOnce: by how many calls ever at once.
func TestCommandIsBegunOnce(t *testing.T) {
	dir, said := filepath.Join(t.TempDir(), "exec"), filepath.Join(t.TempDir(), "said")
	begin := fmt.Sprintf(beginCommand, dir, "echo once >>"+said)
	over, held, err := os.Pipe() // what the calls began holds it, too
	if err != nil {
		t.Fatal(err)
	}
	defer over.Close()
	var calls sync.WaitGroup
	for range 8 {
		calls.Go(func() {
			call := exec.CommandContext(t.Context(), "sh", "-c", begin)
			call.ExtraFiles = []*os.File{held}
			if out, err := call.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	calls.Wait()
	held.Close()
	if _, err := io.Copy(io.Discard, over); err != nil {
		t.Error(err)
	}
	if got, _ := os.ReadFile(said); string(got) != "once\n" {
		t.Errorf("it wrote %q", got)
	}
}

// TestWhatACommandSaidIsShown: a guest's words are one line that no terminal acts upon, with their end.
func TestWhatACommandSaidIsShown(t *testing.T) {
	r, step := aRun(), &scenario.Step{Exec: &scenario.Exec{Guest: "web"}}
	aGuestHere(t, r)
	execsSoFar++
	r.execs = execsSoFar
	dir := fmt.Sprintf("/tmp/godwit-exec-%d", r.execs+1)
	t.Cleanup(func() { os.RemoveAll(dir) })
	r.trouble(step, r.execStep(t.Context(), &scenario.Exec{Guest: "web", Command: `yes filler | head -c 3000; printf '\033[31mred\007 \377 the end\nand so'; exit 4`}))
	if got := r.troubles; len(got) != 1 || strings.ContainsFunc(got[0], func(r rune) bool { return !unicode.IsPrint(r) }) || !strings.Contains(got[0], "red") || !strings.HasSuffix(got[0], "the end; and so") {
		t.Errorf("%q", got)
	}
}

// TestCommandsAreAwaited: a run waits for commands for a while, and not for ever; also for one that begins long after
// the last migration.
func TestCommandsAreAwaited(t *testing.T) {
	for name, c := range map[string]struct{ takes, want time.Duration }{
		"ends": {5 * time.Second, 5 * time.Second}, "ends late": {20 * time.Second, 20 * time.Second}, "runs on": {time.Hour, commandsAwaited},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := aRun()
			r.zero, r.lastEnd, r.w.scenario.End.AfterLastMigration = time.Now().Add(-time.Hour), time.Now().Add(-time.Minute), 5*time.Second
			scheduled := make(chan struct{})
			close(scheduled)
			r.backgroundAs(&r.commands, func() {
				select {
				case <-time.After(c.takes):
				case <-t.Context().Done():
				}
			})
			begun := time.Now()
			if timedOut, lasted := r.awaitEnd(t.Context(), scheduled, nil), time.Since(begun); timedOut || lasted < c.want || lasted > c.want+time.Second {
				t.Errorf("%s: the run ended after %v, want %v", name, lasted, c.want)
			}
		})
	}
}

// TestCommandThatRunsOn: a command that outlives its run is no trouble.
func TestCommandThatRunsOn(t *testing.T) {
	step := scenario.Step{Exec: &scenario.Exec{Guest: "web", Command: "sleep 5"}}
	r := aRun(step)
	aGuestHere(t, r)
	execsSoFar += 2
	r.execs = execsSoFar
	dir := fmt.Sprintf("/tmp/godwit-exec-%d", r.execs+1)
	t.Cleanup(func() { os.RemoveAll(dir) })
	r.do(t.Context(), &step)
	r.mu.Lock()
	if r.commands != 1 {
		t.Errorf("%d commands under way, want 1", r.commands)
	}
	r.mu.Unlock()
	close(r.ending)
	r.wg.Wait()
	if len(r.troubles) != 0 {
		t.Errorf("troubles: %q", r.troubles)
	}
}

// TestCommandThatNeverBegan: a command is trouble for which its guest did not answer before the run ended, by itself or
// by an interruption.
func TestCommandThatNeverBegan(t *testing.T) {
	asked := make(chan struct{}, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/guests/web/call", func(_ http.ResponseWriter, q *http.Request) {
		io.Copy(io.Discard, q.Body) //nolint:errcheck // the context of a request whose body was not read does not end
		asked <- struct{}{}
		<-q.Context().Done()
	})
	r := aRun(scenario.Step{Exec: &scenario.Exec{Guest: "web", Command: "true"}})
	r.hasWeb(t, mux)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	if r.carryOut(ctx) {
		t.Error("it met its time limit")
	}
	if got := r.troubles; len(got) != 1 || !strings.Contains(got[0], `the run ended before the guest had said that it began "true"`) {
		t.Errorf("troubles: %q", got)
	}
}
