package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
)

// aScenario is a file that lab check reads.
func aScenario(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "x.yaml")
	if err := os.WriteFile(path, []byte("name: x\nsites: [{name: a, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: p}]}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// printing are commands that print something, and end by themselves.
func printing(t *testing.T) []string {
	socket := " --socket " + anAgent(t)
	return []string{"version", "version --json", "--version", "--help", "help lab", "completion bash", "lab check " + aScenario(t), "lab random --show",
		"host ls" + socket, "host ls --json" + socket, "guest ls" + socket, "site show b" + socket, "history" + socket, "recover" + socket}
}

// TestDiskFull: what could not be printed is told in one line, by every command, whether it looks or not.
func TestDiskFull(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	const want = "godwit: print the result: write /dev/full: no space left on device; send standard output elsewhere\n"
	for _, line := range printing(t) {
		var errOut bytes.Buffer
		if status := run(strings.Fields(line), full, &errOut); status != exitFailed || errOut.String() != want {
			t.Errorf("godwit %s: status %d, %q", line, status, &errOut)
		}
	}
}

// TestNobodyReads: a reader that went away hears nothing of it, and who does not need one has done what it was asked for.
func TestNobodyReads(t *testing.T) {
	for _, line := range printing(t) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		want := exitFailed
		if strings.HasPrefix(line, "lab") {
			want = exitDone
		}
		var errOut bytes.Buffer
		if status := run(strings.Fields(line), w, &errOut); status != want || errOut.Len() > 0 {
			t.Errorf("godwit %s: status %d, %q; want %d", line, status, &errOut, want)
		}
		w.Close()
	}
}

// failing is a standard output to which nothing can be written.
type failing struct{ error }

func (f failing) Write([]byte) (int, error) { return 0, f.error }

// TestEnds: what else a command failed with is told beside what was not printed, or alone where only the reader is gone.
func TestEnds(t *testing.T) {
	const unprinted = "print the result: no space left on device; send standard output elsewhere"
	for _, c := range []struct {
		out  error
		err  error // of the command
		want string
	}{
		{syscall.ENOSPC, errSaid, unprinted},
		{syscall.ENOSPC, io.ErrUnexpectedEOF, "unexpected EOF; " + unprinted},
		{syscall.EPIPE, errSaid, errSaid.Error()},
		{syscall.EPIPE, io.ErrUnexpectedEOF, "unexpected EOF"},
		{nil, errSaid, errSaid.Error()},
	} {
		stdout := &output{Writer: failing{c.out}}
		if c.out == nil {
			stdout.Writer = io.Discard
		}
		command := &cobra.Command{}
		command.SetOut(stdout)
		if err := printJSON(command.OutOrStdout(), 1); (err == nil) != (c.out == nil) {
			t.Fatal(err)
		}
		if got := inWords(stdout.ended(c.err)); got != c.want {
			t.Errorf("%v, %v: %q, want %q", c.out, c.err, got, c.want)
		}
	}
}

// TestIdleKeysAreTold: what a file asks for in vain is told with its place, and refused by nobody.
func TestIdleKeysAreTold(t *testing.T) {
	path := aScenario(t)
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("clients: [{name: c}]\nguests: [{name: g, site: a}]\ntraffic:\n  - {name: t, client: c, guest: g, kind: exec, command: ls, rate: 1mbit}\n"); err != nil {
		t.Fatal(err)
	}
	f.Close()
	var out, errOut bytes.Buffer
	status := run([]string{"lab", "check", path}, &out, &errOut)
	want := path + ":6:61: rate of traffic t does nothing with kind exec, but with ticks, download, upload, requests, udp, iperf3\n"
	if status != exitDone || out.Len() == 0 || errOut.String() != want {
		t.Errorf("status %d, %q, %q; want %q", status, &out, &errOut, want)
	}
}

// TestJSONAlone: with --json commands print one JSON value, also those that have text to print.
func TestJSONAlone(t *testing.T) {
	for _, line := range []string{"version", "lab check " + aScenario(t), "lab random --show --seed 7", "init a --out " + t.TempDir()} {
		var out bytes.Buffer
		status := run(append(strings.Fields(line), "--json"), &out, io.Discard)
		if status != exitDone || !json.Valid(out.Bytes()) {
			t.Errorf("godwit %s --json: status %d, %.60q", line, status, &out)
		}
	}
}

// TestRunThatDoesNotBegin: a scenario that cannot be read leaves no report of another run, and makes no directory.
func TestRunThatDoesNotBegin(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("name: x\nsitse: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{bad, filepath.Join(t.TempDir(), "none.yaml")} {
		dir := t.TempDir()
		for _, name := range []string{"report.json", "report.html", "notes.txt"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte("of a run before"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if status := run([]string{"lab", "run", file, "--out", dir}, io.Discard, io.Discard); status != exitUsage {
			t.Errorf("%s: status %d", file, status)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 1 || left[0].Name() != "notes.txt" {
			t.Errorf("%s: left %v, %v", file, left, err)
		}
		dir = filepath.Join(dir, "new")
		run([]string{"lab", "run", file, "--out", dir}, io.Discard, io.Discard)
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%s: %v", dir, err)
		}
	}
}
