package hook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"godwit/migration"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a Set with a directory of its own and what it noted.
type bench struct {
	*testing.T
	set *Set
	dir string

	mu    sync.Mutex
	notes []string

	results []Result
}

// unhung is what a call that waited for no hanging hook stays under on a busy machine: those
// hooks sleep for a minute.
const unhung = 20 * time.Second

func newBench(t *testing.T, config Config) *bench {
	t.Helper()
	b := &bench{T: t, dir: t.TempDir()}
	config.Dir = b.dir
	if err := config.Check(); err != nil {
		t.Fatal(err)
	}
	b.set = New(config, slog.New(slog.NewTextHandler(io.Discard, nil)), func(_ Call, text string) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.notes = append(b.notes, text)
	}, func(_ migration.EventName, result Result) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.results = append(b.results, result)
	})
	t.Cleanup(b.set.Close)
	return b
}

func (b *bench) noted() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.notes, "\n")
}

// counted is how many calls came to a result.
func (b *bench) counted(r Result) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, one := range b.results {
		if one == r {
			n++
		}
	}
	return n
}

// script puts an executable into an event's directory.
func (b *bench) script(event migration.EventName, name, body string) string {
	b.Helper()
	dir := filepath.Join(b.dir, string(event)+".d")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		b.Fatal(err)
	}
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
		b.Fatal(err)
	}
	return path
}

var aCall = Call{
	Event: migration.PreSourceSuspend, Host: "paris", Role: "source", Phase: migration.Copy, Time: time.Unix(1, 0).UTC(),
	Plan: migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome"},
}

// ask calls the hooks of aCall, and checks what they say: no words mean go.
func (b *bench) ask(code migration.Code, words ...string) time.Duration {
	b.Helper()
	began := time.Now()
	_, err := b.set.Ask(b.Context(), aCall)
	took := time.Since(began)
	var problem *migration.Problem
	if errors.As(err, &problem) != (code != "") || err != nil && problem == nil {
		b.Fatalf("asked: %v, want code %q", err, code)
	}
	if problem == nil {
		return took
	}
	if problem.Code != code {
		b.Errorf("code %s, want %s: %s", problem.Code, code, problem.Text)
	}
	for _, w := range words {
		if !strings.Contains(problem.Text, w) {
			b.Errorf("%q: want %q in it", problem.Text, w)
		}
	}
	if strings.ContainsAny(problem.Text, "\n\r\x00") || len(problem.Text) > 500 {
		b.Errorf("not one short line: %q", problem.Text)
	}
	return took
}

// within waits for something that a queue does.
func (b *bench) within(d time.Duration, what string, ok func() bool) {
	b.Helper()
	for until := time.Now().Add(d); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			b.Fatalf("%s: not in %v; noted: %s", what, d, b.noted())
		}
	}
}

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

func TestFailures(t *testing.T) {
	for _, c := range []struct {
		name, body string
		code       migration.Code
		words      []string
	}{
		{"says no", "echo thinking; echo the router is down >&2; exit 3", migration.CodeHook, []string{"hook 10-x", "PRE_SOURCE_SUSPEND", "guest web", "exit status 3", "the router is down"}},
		{"crashes", "echo half a; kill -SEGV $$", migration.CodeHook, []string{"segmentation fault", "half a"}},
		{"hangs", "sleep 60", migration.CodeTimeout, []string{"limit hook_blocking of 300ms passed"}},
		{"hangs and hears no signal", "trap '' TERM INT HUP; while :; do sleep 60; done", migration.CodeTimeout, []string{"limit hook_blocking of 300ms passed"}},
		{"prints for ever", "yes $(head -c 3000 /dev/zero | tr '\\0' x)", migration.CodeTimeout, []string{"limit hook_blocking"}},
		{"prints what is no text", `printf 'a\001b\033[31m\377c\n'; exit 1`, migration.CodeHook, []string{"a b [31m?c"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			limit := time.Minute
			if c.code == migration.CodeTimeout {
				limit = 300 * time.Millisecond
			}
			b := newBench(t, Config{Files: []File{{Name: "10-x", Timeout: limit}}})
			b.script(aCall.Event, "10-x", c.body)
			b.script(aCall.Event, "20-after", "touch "+filepath.Join(b.dir, "after"))
			if took := b.ask(c.code, c.words...); took > unhung {
				t.Errorf("took %v", took)
			}
			if _, err := os.Stat(filepath.Join(b.dir, "after")); err == nil {
				t.Error("the hook after one that failed was called")
			}
		})
	}
}

func TestFailureMayBeContinued(t *testing.T) {
	b := newBench(t, Config{Files: []File{{Name: "10-x", OnFailure: Continue}}})
	b.script(aCall.Event, "10-x", "echo no; exit 1")
	b.script(aCall.Event, "20-after", "touch "+filepath.Join(b.dir, "after"))
	b.ask("")
	if _, err := os.Stat(filepath.Join(b.dir, "after")); err != nil {
		t.Error("the hook after was not called")
	}
	if !strings.Contains(b.noted(), "hook 10-x") || !strings.Contains(b.noted(), "going on") {
		t.Errorf("noted: %s", b.noted())
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

func TestHTTP(t *testing.T) {
	var got Call
	mux := http.NewServeMux()
	mux.HandleFunc("POST /go", func(_ http.ResponseWriter, r *http.Request) {
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
			t.Error(err)
		}
	})
	mux.HandleFunc("POST /no", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "not today\nnor tomorrow", http.StatusForbidden)
	})
	mux.HandleFunc("POST /elsewhere", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/go", http.StatusFound) })
	mux.HandleFunc("POST /gigabyte", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		for range 1 << 10 {
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				return
			}
		}
	})
	done := make(chan struct{})
	mux.HandleFunc("POST /hang", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-done:
		}
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	defer close(done)
	for _, c := range []struct {
		path  string
		code  migration.Code
		words []string
	}{
		{"/go", "", nil},
		{"/no", migration.CodeHook, []string{"403", "not today"}},
		{"/elsewhere", migration.CodeHook, []string{"302"}},
		{"/gigabyte", migration.CodeHook, []string{"418"}},
		{"/hang", migration.CodeTimeout, []string{"limit hook_blocking of 500ms passed"}},
		{"/none", migration.CodeHook, []string{"404"}},
	} {
		t.Run(c.path, func(t *testing.T) {
			limit := time.Minute
			if c.code == migration.CodeTimeout {
				limit = 500 * time.Millisecond
			}
			b := newBench(t, Config{HTTP: []HTTP{{URL: server.URL + c.path, Events: []migration.EventName{aCall.Event}, Timeout: limit}}})
			b.ask(c.code, c.words...)
		})
	}
	if got.Plan.Guest != "web" || !got.Blocking {
		t.Errorf("%+v", got)
	}
	b := newBench(t, Config{HTTP: []HTTP{{URL: "http://127.0.0.1:1/", Events: []migration.EventName{aCall.Event}}}})
	b.ask(migration.CodeHook, "connection refused")
}

// TestTellDoesNotWait: the hooks of informative events run beside the migration, each
// in the order of its events, and one that hangs holds up nobody else.
func TestTellDoesNotWait(t *testing.T) {
	b := newBench(t, Config{Files: []File{{Name: "10-hangs", Timeout: 1500 * time.Millisecond}}}) // more than lateAfter
	log := filepath.Join(b.dir, "log")
	for _, e := range []migration.EventName{migration.SourceSuspend, migration.TargetResume, migration.HandoverDone} {
		b.script(e, "20-log", "echo $GODWIT_EVENT >>"+log)
	}
	b.script(migration.SourceSuspend, "10-hangs", "sleep 60")
	b.script(migration.TargetResume, "10-hangs", "sleep 60")
	told := filepath.Join(b.dir, "told")
	b.script(migration.SourceSuspend, "05-waits", "while [ ! -e "+told+" ]; do sleep 0.05; done")
	c := aCall
	for _, e := range []migration.EventName{migration.SourceSuspend, migration.TargetResume, migration.HandoverDone} {
		c.Event = e
		b.set.Tell(c)
	}
	if err := os.WriteFile(told, nil, 0o600); err != nil { // which would not be where telling waits: 05-waits would come to its limit
		t.Fatal(err)
	}
	b.within(unhung, "all events", func() bool {
		data, _ := os.ReadFile(log)
		return string(data) == "SOURCE_SUSPEND\nTARGET_RESUME\nHANDOVER_DONE\n"
	})
	b.within(unhung, "notes", func() bool {
		said := b.noted()
		return strings.Contains(said, "limit hook_informative of 1.5s passed") && strings.Contains(said, "late")
	})
	b.within(unhung, "results", func() bool { return b.counted(Done) == 4 && b.counted(TimedOut) == 2 })
}

func TestQueueIsBounded(t *testing.T) {
	b := newBench(t, Config{})
	b.script(migration.SourceSuspend, "10-hangs", "sleep 60")
	c := aCall
	c.Event = migration.SourceSuspend
	for range queueMost + 20 {
		b.set.Tell(c)
		time.Sleep(time.Millisecond)
	}
	b.within(unhung, "a note", func() bool { return strings.Contains(b.noted(), "was not told") })
	b.within(unhung, "19 or 20 that were dropped", func() bool { return b.counted(Dropped) >= 19 })
	began := time.Now()
	b.set.Close()
	if took := time.Since(began); took > unhung {
		t.Errorf("close took %v", took)
	}
}

func TestConfigsThatAreWrong(t *testing.T) {
	for _, c := range []struct {
		config Config
		want   string
	}{
		{Config{Files: []File{{}}}, "hooks.files[0]: its name is missing"},
		{Config{Files: []File{{Name: "a"}, {Name: "a"}}}, "used twice"},
		{Config{Files: []File{{Name: "a", Timeout: -1}}}, "hooks.files[0] a: timeout"},
		{Config{HTTP: []HTTP{{URL: "localhost:80", Events: []migration.EventName{"X"}}}}, "hooks.http[0]: url"},
		{Config{HTTP: []HTTP{{URL: "http://localhost"}}}, "no events"},
		{Config{HTTP: []HTTP{{URL: "http://localhost", Events: []migration.EventName{"X"}}}}, `"X" is unknown`},
		{Config{HTTP: []HTTP{{URL: "http://localhost", Events: []migration.EventName{aCall.Event}, OnFailure: "stop"}}}, "allowed: abort, continue"},
	} {
		if err := c.config.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.config, err, c.want)
		}
	}
}
