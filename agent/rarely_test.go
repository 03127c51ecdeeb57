package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/ends"
	"godwit/internal/need"
	"godwit/netstate/netns"
)

// TestRarely: what is wrong for long is said at once, and each minute from then on; nothing is kept of what is over.
func TestRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		var r rarely
		log := slog.New(slog.NewTextHandler(&out, nil))
		for n := range 120 {
			full := fmt.Errorf("write .tmp-%d: no space left on device", n)
			if r.warn(log, "detour", "guest", "web", "error", full); n == 10 {
				r.warn(log, "detour", "guest", "db", "error", full)
				r.warn(log, "detour", "guest", "web", "error", errors.New("input/output error"))
			}
			time.Sleep(time.Second)
		}
		for words, want := range map[string]int{"guest=web": 3, "guest=db": 1, "input/output": 1} {
			if n := strings.Count(out.String(), words); n != want {
				t.Errorf("%s: said %d times, want %d:\n%s", words, n, want, out.String())
			}
		}
		time.Sleep(2 * sayAgain)
		if r.again("something else"); len(r.said) != 1 {
			t.Errorf("kept %v", r.said)
		}
	})
}

// lineCount counts what is logged.
type lineCount struct {
	slog.Handler
	n *atomic.Int32
}

func (lineCount) Enabled(context.Context, slog.Level) bool { return true }

func (l lineCount) Handle(context.Context, slog.Record) error { l.n.Add(1); return nil }

// TestFullDiskIsSaidOnce: detours that cannot be written down are tried each second, and a log is not filled by that.
func TestFullDiskIsSaidOnce(t *testing.T) {
	need.Root(t)
	a := bareAgent(t, &config.Config{Host: "paris"})
	var said atomic.Int32
	a.log = slog.New(lineCount{slog.DiscardHandler, &said})
	path := filepath.Join(a.config.State, "away", "detours.json")
	a.detours = detour.New(path, config.Network{}, map[string]*detour.Detour{})
	if err := os.WriteFile(filepath.Dir(path), nil, 0o600); err != nil { // a file where its directory should be
		t.Fatal(err)
	}
	if err := netns.Once(func() error {
		err := a.detours.Change("web", func(map[string]*detour.Detour) {})
		for range 5 {
			a.catchUp()
		}
		return err
	}); !errors.Is(err, detour.ErrUnwritten) {
		t.Fatal(err)
	}
	if said.Load() != 1 {
		t.Errorf("said %d times", said.Load())
	}
}

// TestWhatMayNotChangeIsSaidOnce: kept memory that cannot be removed, and a tunnel for memory that does not answer, are
// tried each second, too.
func TestWhatMayNotChangeIsSaidOnce(t *testing.T) {
	a := bareAgent(t, &config.Config{Host: "paris"})
	var said atomic.Int32
	a.log = slog.New(lineCount{slog.DiscardHandler, &said})
	a.unread = map[string]string{"m-00000001": "its journal is left alone"}
	stays := filepath.Join(a.config.StatePath("visits"), "web.mem", "in it") // what is not empty is not removed
	silent := filepath.Join(ends.Dir(a.config), "gwm0-00000001.sock")
	for _, path := range []string{stays, silent} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		var l looks
		a.lookAtHost(t.Context(), &l)
		l.all.Wait()
	}
	if said.Load() != 2 {
		t.Errorf("said %d times", said.Load())
	}
}
