package hook

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"godwit/migration"
)

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
