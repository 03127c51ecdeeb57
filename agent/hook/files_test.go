package hook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"godwit/migration"
)

func TestAskRunsExecutablesInOrder(t *testing.T) {
	b := newBench(t, Config{})
	log := filepath.Join(t.TempDir(), "log")
	b.script(aCall.Event, "20-second", "echo second >>"+log)
	b.script(aCall.Event, "10-first", "echo first $GODWIT_EVENT $GODWIT_GUEST $GODWIT_ROLE >>"+log+"; cat >>"+log+"; env | wc -l >>"+log)
	b.script(aCall.Event, "30-backup~", "exit 1")
	b.script(aCall.Event, ".hidden", "exit 1")
	b.script(migration.MigrationDone, "10-other", "exit 1")
	if err := os.WriteFile(filepath.Join(b.dir, string(aCall.Event)+".d", "README"), []byte("words"), 0o644); err != nil {
		t.Fatal(err)
	}
	b.ask("")
	data, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	if len(lines) != 4 || lines[0] != "first PRE_SOURCE_SUSPEND web source" || lines[3] != "second" {
		t.Fatalf("%q", lines)
	}
	var got Call
	if err := json.Unmarshal([]byte(lines[1]), &got); err != nil || got.Plan.ID != aCall.Plan.ID || !got.Blocking || got.Event != aCall.Event || !got.Time.Equal(aCall.Time) {
		t.Errorf("%s: %+v, %v", lines[1], got, err)
	}
	if n, err := strconv.Atoi(strings.TrimSpace(lines[2])); err != nil || n > 12 {
		t.Errorf("%d words of environment, %v", n, err)
	}
}

// TestKilledWithItsChildren: what a hook that hangs has said is told, and what it started in its group is gone, too.
func TestKilledWithItsChildren(t *testing.T) {
	var b *bench
	var data []byte
	for limit := 300 * time.Millisecond; len(data) == 0; limit *= 4 { // a busy machine may not have started it in the first
		if limit > time.Minute {
			t.Fatal("it is not started")
		}
		b = newBench(t, Config{Files: []File{{Name: "10-x", Timeout: limit}}})
		pids := filepath.Join(b.dir, "pids")
		b.script(aCall.Event, "10-x", "echo waiting; sleep 61 & echo $! >"+pids+"; wait")
		_, err := b.set.Ask(b.Context(), aCall)
		if data, _ = os.ReadFile(pids); len(data) > 0 && (err == nil || !strings.Contains(err.Error(), "limit hook_blocking of "+limit.String()+" passed") || !strings.Contains(err.Error(), "waiting")) {
			t.Errorf("%v, want its limit, and what it said", err)
		}
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	b.within(unhung, "the child's end", func() bool { return !alive(pid) })
}

// alive says whether a process runs; one that nobody waited for yet does not.
func alive(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(data), ") ")
	return !strings.HasPrefix(after, "Z")
}

func TestCancelEndsTheHookAtOnce(t *testing.T) {
	b := newBench(t, Config{})
	file := filepath.Join(b.dir, "pid")
	b.script(aCall.Event, "10-x", "echo $$ >"+file+"; sleep 60")
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan error, 1)
	go func() {
		_, err := b.set.Ask(ctx, aCall)
		asked <- err
	}()
	var data []byte
	b.within(unhung, "the hook", func() bool { data, _ = os.ReadFile(file); return len(data) > 0 })
	cancel()
	began := time.Now()
	err := <-asked
	if took := time.Since(began); !errors.Is(err, context.Canceled) || took > unhung {
		t.Errorf("%v after %v", err, took)
	}
	if pid, _ := strconv.Atoi(strings.TrimSpace(string(data))); syscall.Kill(pid, 0) == nil {
		t.Errorf("process %d lives", pid)
	}
}

// TestBackgroundGoesOn: a hook that succeeds may leave something running, and does not wait for it.
func TestBackgroundGoesOn(t *testing.T) {
	b := newBench(t, Config{})
	pids := filepath.Join(b.dir, "pids")
	b.script(aCall.Event, "10-x", "sleep 62 & echo $! >"+pids)
	if took := b.ask(""); took > unhung {
		t.Errorf("took %v", took)
	}
	data, err := os.ReadFile(pids)
	if err != nil {
		t.Fatal(err)
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(data)))
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Errorf("what it left running is gone: %v", err)
	}
}

// TestLastWordsAreRead: what a hook had said when it ended is told, also where its reader had not
// come to it yet, and although what it left behind may say more.
func TestLastWordsAreRead(t *testing.T) {
	said, says, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	defer says.Close()
	if err := said.SetReadDeadline(time.Unix(1, 0)); err != nil { // of a reader that has no turn
		t.Fatal(err)
	}
	var o output
	ended := o.follow(said)
	text := strings.Repeat("thinking\n", 1000) + "the router is down\n"
	if _, err := says.WriteString(text); err != nil {
		t.Fatal(err)
	}
	ended()
	if o.total != int64(len(text)) || o.last() != "the router is down" {
		t.Errorf("%d of %d bytes, the last words are %q", o.total, len(text), o.last())
	}
}

func TestOutputIsBounded(t *testing.T) {
	var o output
	for i := range 1000 {
		fmt.Fprintf(&o, "line %d %s\n", i, strings.Repeat("x", 1000))
	}
	fmt.Fprint(&o, strings.Repeat("y", 1<<20), "\nthe end\n\n")
	text := o.text()
	if len(text) > keepFirst+keepLast+100 || !strings.HasPrefix(text, "line 0") || !strings.Contains(text, "bytes left out") || o.last() != "the end" {
		t.Errorf("%d bytes, last %q", len(text), o.last())
	}
	var small output
	fmt.Fprint(&small, "one\ntwo\n")
	if small.text() != "one\ntwo" {
		t.Errorf("%q", small.text())
	}
}

func TestWhatOthersCanWriteIsNotRun(t *testing.T) {
	b := newBench(t, Config{})
	path := b.script(aCall.Event, "10-x", "touch "+filepath.Join(b.dir, "ran"))
	if err := os.Chmod(path, 0o777); err != nil {
		t.Fatal(err)
	}
	b.ask(migration.CodeHook, "chmod go-w")
	if err := errors.Join(os.Chmod(path, 0o755), os.Chmod(filepath.Dir(path), 0o777)); err != nil {
		t.Fatal(err)
	}
	b.ask(migration.CodeHook, "chmod go-w")
	if _, err := os.Stat(filepath.Join(b.dir, "ran")); err == nil {
		t.Error("it ran")
	}
}

// TestNotBegun: of a script that the kernel cannot begin it is said why.
func TestNotBegun(t *testing.T) {
	b := newBench(t, Config{})
	path := b.script(aCall.Event, "10-x", "exit 0")
	for text, want := range map[string]string{
		"#!/no/such/shell\nexit 0\n": "what the #! of its first line names",
		"exit 0\n":                   "begins with #!, such as #!/bin/sh",
	} {
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		b.ask(migration.CodeHook, want)
	}
}
