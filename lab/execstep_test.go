package lab

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"godwit/agent/api"
	"godwit/lab/scenario"
	"godwit/vm/guest"
)

// aGuestHere has the commands for guest web run on this machine.
func aGuestHere(t *testing.T, r *run) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/guests/web/call", func(w http.ResponseWriter, q *http.Request) {
		var call api.GuestCall
		var e guest.Exec
		if json.NewDecoder(q.Body).Decode(&call) != nil || json.Unmarshal(call.Params, &e) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		cmd := exec.CommandContext(q.Context(), "sh", "-c", e.Command)
		out, _ := cmd.Output()
		json.NewEncoder(w).Encode(guest.Executed{Exit: cmd.ProcessState.ExitCode(), Stdout: string(out)}) //nolint:errcheck // the client tells
	})
	r.hasWeb(t, mux)
}

// TestExecStep: a command's end is told; that of a guest that was booted again under it, which has
// nothing of it any more, is not waited for.
func TestExecStep(t *testing.T) {
	for _, c := range []struct {
		command string
		reboot  bool
		want    string
	}{
		{"true", false, ""},
		{"echo no room; exit 3", false, "exit 3: no room"},
		{"echo 'it''s so' \"$0\" >&2; exit 4", false, "exit 4: its so"},
		{"kill -9 0", false, "exit 137"},
		{"kill -9 $$", false, "exit 137"},
		{"true ) && ( true", false, "exit 2"},
		{"echo 'unclosed", false, "exit 2"},
		{"cd /; pwd >/dev/null; trap 'exit 5' EXIT", false, "exit 5"},
		{"sleep 2", true, "the guest was booted again under it"},
	} {
		r := aRun()
		aGuestHere(t, r)
		r.execs = os.Getpid() * 10
		dir := fmt.Sprintf("/tmp/godwit-exec-%d", r.execs+1)
		t.Cleanup(func() { os.RemoveAll(dir) })
		if c.reboot {
			time.AfterFunc(500*time.Millisecond, func() { os.RemoveAll(dir) })
		}
		begun := time.Now()
		err := r.execStep(t.Context(), &scenario.Exec{Guest: "web", Command: c.command})
		os.RemoveAll(dir)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) || time.Since(begun) > 10*time.Second {
			t.Errorf("%s: %v after %v, want %q", c.command, err, time.Since(begun), c.want)
		}
	}
}

// TestCommandThatRunsOn: a run does not wait for ever for a command, and one that outlives it is no trouble.
func TestCommandThatRunsOn(t *testing.T) {
	step := scenario.Step{Exec: &scenario.Exec{Guest: "web", Command: "sleep 5"}}
	r := aRun(step)
	aGuestHere(t, r)
	r.execs = os.Getpid()*10 + 5
	dir := fmt.Sprintf("/tmp/godwit-exec-%d", r.execs+1)
	t.Cleanup(func() { os.RemoveAll(dir) })
	r.do(t.Context(), &step)
	scheduled := make(chan struct{})
	close(scheduled)
	r.w.scenario.End.AfterLastMigration = 0
	r.zero = time.Now().Add(time.Second - commandsAwaited)
	begun := time.Now()
	if r.awaitEnd(t.Context(), scheduled, nil) || time.Since(begun) < 900*time.Millisecond || r.commands != 1 {
		t.Errorf("the run ended after %v, with %d commands under way; want it to have waited for that one a while", time.Since(begun), r.commands)
	}
	close(r.ending)
	r.wg.Wait()
	if len(r.troubles) != 0 {
		t.Errorf("troubles: %q", r.troubles)
	}
}
