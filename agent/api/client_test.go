package api

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/internal/need"
	"godwit/migration"
)

// Why no agent was reached is said by what is there, with what to do about it.
func TestUndialled(t *testing.T) {
	dir := t.TempDir()
	file, dead, packets := filepath.Join(dir, "file"), filepath.Join(dir, "dead.sock"), filepath.Join(dir, "packets.sock")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	listener.Close()
	other, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: packets})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for socket, want := range map[string]migration.Problem{
		filepath.Join(dir, "none.sock"): {Code: migration.CodePeer, Text: "`systemctl status godwit` says why, or start one by `godwit agent"},
		dead:                            {Code: migration.CodePeer, Text: "start one"},
		file:                            {Code: migration.CodeUsage, Text: "not an agent's socket"},
		dir:                             {Code: migration.CodeUsage, Text: "not an agent's socket"},
		packets:                         {Code: migration.CodeUsage, Text: "not an agent's socket"},
		filepath.Join(dir, strings.Repeat("x", 99)): {Code: migration.CodeUsage, Text: "that long"},
	} {
		saysUndialled(t, socket, want)
	}
}

// TestSilentAgent: one that takes connections and answers nothing, or half of it, keeps nobody waiting for ever.
func TestSilentAgent(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "s") && r.URL.Path != "/v1/events" { // it hangs in the middle of its answer
			w.Write([]byte("[")) //nolint:errcheck // the client tells
			w.(http.Flusher).Flush()
		}
		<-over
	})}
	go server.Serve(listener) //nolint:errcheck // it ends with the test
	t.Cleanup(func() { close(over); server.Close() })
	client := NewClient(socket)
	defer client.Close()
	client.silence = 100 * time.Millisecond
	for name, ask := range map[string]func() error{
		"host":     func() error { _, err := client.Host(t.Context()); return err },
		"history":  func() error { _, err := client.Reports(t.Context()); return err },
		"metrics":  func() error { return client.Metrics(t.Context(), io.Discard) },
		"plan":     func() error { _, err := client.Plan(t.Context(), migration.Request{Guest: "web"}); return err },
		"watching": func() error { _, err := client.Events(t.Context(), "m-00000001", 0); return err },
		"events":   func() error { return client.Feed(t.Context(), func(FeedEvent) error { return nil }) },
	} {
		err := ask()
		isProblem(t, socket, err, migration.Problem{Code: migration.CodePeer, Text: "has not answered for " + map[bool]string{true: "400ms", false: "100ms"}[name == "plan"] + "; see its log"})
		if !Unanswered(err) {
			t.Errorf("%s: that counts as the agent's word", name)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, migrate := client.Migrate(ctx, migration.Request{Guest: "web"})
	_, adopt := client.StartGuest(t.Context(), config.Description{Name: "web", QMP: "/run/web.qmp"})
	_, away := client.ForgetAway(t.Context(), "web")
	for name, err := range map[string]error{
		"migrate": migrate, "forget one that left": away, "abort": client.Abort(t.Context(), "m-1"), "limit": client.SetBandwidth(t.Context(), "m-1", 0), "forget": client.ForgetGuest(t.Context(), "web"),
		"adopt": adopt, "take back": client.TakeBack(t.Context(), "m-1", TakeBack{}), "give up": client.GiveUp(t.Context(), "m-1"), "keep": client.Keep(t.Context(), "m-1", TakeBack{}),
	} {
		if err == nil || !strings.Contains(err.Error(), "may have done what it was asked to") || !Unanswered(err) || NotAsked(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestNoAgentsAnswer: what is no answer of an agent's is said with the socket that it came from.
func TestNoAgentsAnswer(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte("<html>")) //nolint:errcheck // the client tells
	})}
	go server.Serve(listener) //nolint:errcheck // it ends with the test
	defer server.Close()
	client := NewClient(socket)
	defer client.Close()
	if _, err := client.Host(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "ask agent at "+socket+": what answers is no agent") || !strings.Contains(err.Error(), "--socket") {
		t.Errorf("%v", err)
	}
}

// saysUndialled asks at a socket where no agent answers.
func saysUndialled(t *testing.T, socket string, want migration.Problem) {
	t.Helper()
	client := NewClient(socket)
	defer client.Close()
	_, err := client.Host(t.Context())
	isProblem(t, socket, err, want)
}

func isProblem(t *testing.T, socket string, err error, want migration.Problem) {
	t.Helper()
	var got *migration.Problem
	if !errors.As(err, &got) || got.Code != want.Code || !strings.Contains(got.Text, want.Text) || !strings.Contains(got.Text, socket) {
		t.Errorf("%s: %v; want %s, %q", socket, err, want.Code, want.Text)
	}
}

// An agent that is there, and may not be asked, is not said to be missing.
func TestUndialledWithoutPermission(t *testing.T) {
	need.Root(t)
	socket := filepath.Join(t.TempDir(), "agent.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	asked := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: what this thread may not do ends with it
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETFSUID, 65534, 0, 0); errno != 0 {
			asked <- errno
			return
		}
		_, err := net.Dial("unix", socket)
		asked <- undialled(socket, err)
	}()
	isProblem(t, socket, <-asked, migration.Problem{Code: migration.CodeUsage, Text: "as root"})
}
