package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// agentConfig is the file of an agent that could run, but for its certificate.
func agentConfig(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	text := fmt.Sprintf(`host: rome
site: rome
state: %[1]s/state
run: %[1]s/run
tls: {ca: %[1]s/ca.pem, cert: %[1]s/rome.pem, key: %[1]s/rome.key}
network: {bridge: br0, lan: lan0, v4: 10.1.1.0/24}
uplinks: [{name: public, address: 127.0.0.1}]
`, dir)
	path := filepath.Join(dir, "agent.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestAgentEnds: an agent ends by what other commands end by, a closed terminal too. While it runs its socket is its own
// user's alone, whatever mask it was started with: who may ask it has its rights.
func TestAgentEnds(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, as agents do")
	}
	path := agentConfig(t)
	dir := filepath.Dir(path)
	if status := run([]string{"init", "rome", "--out", dir}, io.Discard, os.Stderr); status != exitDone {
		t.Fatal("no certificate")
	}
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, syscall.SIGHUP) // where this test was begun by nohup, what it begins is not
	defer signal.Stop(heard)
	socket := filepath.Join(dir, "run", "agent.sock")
	for _, end := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		if err := os.RemoveAll(socket); err != nil { // the one before may have ended faster than it removed it
			t.Fatal(err)
		}
		command := exec.Command("/bin/sh", "-c", `umask 0; ip link set lo up; exec "$0" agent --config "$1"`, os.Args[0], path)
		command.Env, command.SysProcAttr = append(os.Environ(), asGodwit+"=1"), &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- command.Wait() }()
		for until := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			info, err := os.Stat(socket)
			if err == nil && info.Mode().Perm() != 0o600 {
				t.Errorf("its socket: %v", info.Mode())
			}
			if err == nil || time.Now().After(until) {
				break
			}
		}
		var out strings.Builder
		if status := run([]string{"metrics", "--socket", socket}, &out, os.Stderr); status != exitDone || !strings.Contains(out.String(), "\ngodwit_certificate_expiry_timestamp_seconds 1") {
			t.Errorf("its metrics, status %d, have no end of its certificate", status)
		}
		err := command.Process.Signal(end)
		select {
		case werr := <-ended:
			if err = errors.Join(err, werr); err != nil {
				t.Errorf("%v: %v", end, err)
			}
		case <-time.After(20 * time.Second):
			t.Errorf("%v: it goes on", end)
			command.Process.Kill() //nolint:errcheck // it is ours
			<-ended
		}
	}
}
