package hook

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"godwit/migration"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
