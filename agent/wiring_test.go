package agent

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"godwit/agent/config"
	"godwit/agent/ends"
)

// TestItsLogsAreBounded: what guests of this host write to their consoles, and its tunnels to their logs, is kept short
// where the agent puts both.
func TestItsLogsAreBounded(t *testing.T) {
	a := bareAgent(t, &config.Config{Host: "rome"})
	var logs []string
	for dir, name := range map[string]string{a.guestDir("web", "1"): "serial.log", ends.Dir(a.config): "gwt-00000001.log"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, bytes.Repeat([]byte("x"), 18<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		logs = append(logs, path)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		a.boundLogs(ctx)
	})
	for _, path := range logs {
		var stat syscall.Stat_t
		if err := syscall.Stat(path, &stat); err != nil || stat.Blocks*512 > 2<<20 {
			t.Errorf("%s takes %d bytes, %v", path, stat.Blocks*512, err)
		}
	}
}

// TestGuestsAreSpokenTo: who keeps detours has guests from another link hear their routers, and says where they cannot.
func TestGuestsAreSpokenTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, g, d := leasing(t)
		var said bytes.Buffer
		a.log = slog.New(slog.NewTextHandler(&said, nil))
		a.config.Network.Bridge = "no-such-bridge"
		with := visiting6()
		d.Visiting, d.Taps, d.OffLink = with.Visiting, with.Taps, with.OffLink
		place(a, d)
		ctx, cancel := context.WithTimeout(t.Context(), 2*leaseLook-time.Millisecond)
		defer cancel()
		a.keepDetours(ctx)
		a.actors.Wait()
		if want := "a guest does not hear its routers and neighbours"; !strings.Contains(said.String(), want) || !strings.Contains(said.String(), "guest="+g.Name()) {
			t.Errorf("not said that %s:\n%s", want, said.String())
		}
	})
}
