package agent

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"godwit/agent/agenttest"
	"godwit/agent/peer"
	"godwit/agent/talk"
	"godwit/migration"
)

// TestGivenUp: what a waiting destination makes of its source's answer.
func TestGivenUp(t *testing.T) {
	away := &peer.Unreachable{Host: "paris", Cause: context.DeadlineExceeded}
	waits, runs := migration.Destination{Landing: migration.Waiting}, migration.Destination{Landing: migration.Adopting}
	vanished := migration.Destination{Landing: migration.Waiting, Vanished: true}
	aborted := talk.CourseAnswer{Course: talk.CourseOver, Problem: &migration.Problem{Code: migration.CodePath, Text: "not a byte moved"}}
	for _, c := range []struct {
		name   string
		answer talk.CourseAnswer
		err    error
		quiet  time.Duration
		state  migration.Destination
		words  []string // none: it waits on
	}{
		{"under way", talk.CourseAnswer{Course: talk.CourseUnderWay}, nil, time.Hour, waits, nil},
		{"let go", talk.CourseAnswer{Course: talk.CourseUnderWay, Released: true}, nil, time.Hour, waits, nil},
		{"turned back", aborted, nil, inquireAfter, waits, []string{"paris gave migration m-00000001 up", "not a byte moved"}},
		{"turned back, and it is not sure that it never ran here", aborted, nil, inquireAfter, vanished, []string{"gave migration"}},
		{"over, but it let go", talk.CourseAnswer{Course: talk.CourseOver, Released: true}, nil, time.Hour, waits, nil},
		{"unknown there", talk.CourseAnswer{Course: talk.CourseUnknown}, nil, inquireAfter, waits, []string{"knows nothing of"}},
		{"unknown there, not sure", talk.CourseAnswer{Course: talk.CourseUnknown}, nil, inquireAfter, vanished, nil},
		{"no answer", talk.CourseAnswer{}, away, silence, waits, nil},
		{"no answer for long", talk.CourseAnswer{}, away, silence + time.Second, waits, []string{"paris was silent for 10m0s"}},
		{"no answer for long, not sure", talk.CourseAnswer{}, away, 100 * silence, vanished, nil},
		{"runs here, whatever is said", aborted, nil, time.Hour, runs, nil},
		{"runs here, but the source took it back", talk.CourseAnswer{Course: talk.CourseUnderWay, Epoch: 4}, nil, time.Hour, runs, []string{"epoch 4", "it was 3"}},
		{"not sure, and the source took it back", talk.CourseAnswer{Course: talk.CourseOver, Epoch: 4}, nil, 0, vanished, []string{"epoch 4"}},
		{"an answer that is an error", talk.CourseAnswer{}, &migration.Problem{Text: "?"}, 100 * silence, waits, nil},
	} {
		m := &incoming{plan: migration.Plan{ID: "m-00000001", From: "paris", To: "rome", Epoch: 3}, state: c.state}
		why := m.givenUp(c.answer, c.err, c.quiet)
		var err error
		code := migration.Code("")
		if why != nil {
			err, code = why, why.Code
		}
		if (why != nil) != (len(c.words) > 0) {
			t.Errorf("%s: %v", c.name, why)
		}
		agenttest.Refused(t, c.name, err, code, c.words...)
	}
}

func TestPanicked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "serial.log")
	for _, c := range []struct {
		text string
		want bool
	}{
		{"", false},
		{"[    1.0] reboot: Restarting system\r\n", false},
		{"[    1.0] Kernel panic - not syncing: sysrq triggered crash\r\n", true},
		{"Kernel panic - of an earlier boot" + string(make([]byte, 20<<10)), false},
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := panicked(path); got != c.want {
			t.Errorf("%.40q: %v", c.text, got)
		}
	}
	if panicked(path + ".none") {
		t.Error("no log, and a panic")
	}
}

// TestSourceThatIsNotNamedAnyMore: a destination that waits for a guest of a host which its configuration does not name
// any more refuses it as one that is silent: nobody would ever say what became of it.
func TestSourceThatIsNotNamedAnyMore(t *testing.T) {
	a := between(t)
	a.config.Peers = nil
	m := &incoming{
		a: a, plan: migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Epoch: 2}, inbox: make(chan migration.Input, 1),
		state: migration.Destination{Landing: migration.Waiting, Epoch: 2, Released: true},
	}
	m.heard.Store(int64(time.Since(started) - silence - time.Second))
	ctx, cancel := context.WithTimeout(t.Context(), 3*inquireInDoubt)
	defer cancel()
	go m.watchSource(ctx)
	select {
	case in := <-m.inbox:
		if in.Kind != migration.Abort || in.Problem.Code != migration.CodeTimeout {
			t.Errorf("%+v", in)
		}
	case <-ctx.Done():
		t.Error("it waits on")
	}
}
