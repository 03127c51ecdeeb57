package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"godwit/agent/api"
	"godwit/agent/record"
	"godwit/internal/need"
	"godwit/lab/scenario"
	"godwit/migration"
)

// A scenario that never ends is not read to its end.
func TestEndlessScenario(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	path := fmt.Sprintf("/dev/fd/%d", r.Fd())
	written := make(chan int, 1)
	go func() {
		n := 0
		defer func() { written <- n }()
		defer w.Close()
		for line := []byte(strings.Repeat("# word\n", 1000)); n < 16<<20; n += len(line) {
			if _, err := w.Write(line); err != nil {
				return
			}
		}
	}()
	if status := run([]string{"lab", "check", path}, io.Discard, io.Discard); status != exitUsage {
		t.Errorf("status %d", status)
	}
	r.Close()
	if n := <-written; n > scenario.MaxFile+1<<18 {
		t.Errorf("%d bytes were read", n)
	}
}

// TestScenarioOfAPipe: a pipe in the file system, whose writer may never come, is refused and not waited for; one whose
// reading end the command was given is read, for as long as nobody interrupts it.
func TestScenarioOfAPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe.yaml")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	var used usageError
	for _, strange := range []string{path, "/dev/zero"} {
		if _, err := scenarioText(t.Context(), strange); !errors.As(err, &used) || !strings.Contains(err.Error(), "no regular file") {
			t.Errorf("%s: %v", strange, err)
		}
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	ctx, interrupt := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, interrupt)
	if _, err := scenarioText(ctx, fmt.Sprintf("/dev/fd/%d", r.Fd())); !errors.Is(err, context.Canceled) || statusOf(err) != exitFailed {
		t.Errorf("interrupted: %v", err)
	}
}

// What was typed wrongly ends with status 2 and one line, and changes nothing.
func TestUsedWrongly(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.yaml")
	if err := os.WriteFile(bad, []byte("name: x\nsites: 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	keep := filepath.Join(os.TempDir(), "godwit-lab-x") // where an id with a path in it would lead from
	for _, line := range []string{
		"nonsense", "sim", "lab nonsense", "lab up", "guest nonsense", "host nonsense", "bench nonsense",
		"lab run", "lab run a b", "lab run " + filepath.Join(dir, "none.yaml"), "lab run " + dir, "lab run " + bad, "lab check " + bad, "lab run --nope " + bad,
		"lab down a b", "lab down zzzz", "lab down --all 3f9a", "lab up a b", "lab up " + bad, "help evacuat", "help lab rum", "completion bsh",
		"evacuate", "evacuate a b", "evacuate a --width 0", "evacuate a --bandwidth 5", "evacuate a --mode fast", "evacuate a --downtime 0s", "lab down " + "x/../../" + dir, "watch a b", "recover a b", "host show a b", "version x",
		"init", "init --out " + dir + " ca", "init --out " + dir + " a a", "init --out " + dir + " a/b", "init --out " + dir + " a\u200bb", "init --out " + dir + " 192.0.2.1", "init --out " + dir + " a:7440", "init --out " + dir + " münchen", "init --out " + dir + " " + strings.Repeat("a", 251),
		"migrate web", "migrate web b --mode fast", "migrate web b --transfer quic", "migrate web b --network x", "migrate web b --tunnel x",
		"migrate web b --downtime 3", "migrate web b --downtime 0s", "migrate web b --bandwidth 5", "plan web b --mode fast", "limit m-00000001 fast",
		"migrate web", "--nope", "migrate --nope", "bench memory --rounds 0", "lab random --runs 0", "bench handover --rounds -1",
	} {
		var out, errOut bytes.Buffer
		status := run(strings.Fields(line), &out, &errOut)
		if said := errOut.String(); status != exitUsage || strings.Count(said, "\n") != 1 || !strings.HasPrefix(said, "godwit: ") || strings.HasPrefix(said, "godwit: godwit") || strings.Contains(said, "arg(s)") || out.Len() > 0 {
			t.Errorf("godwit %s: status %d, said %q %q; want %d and one line", line, status, said, out.String(), exitUsage)
		}
	}
	if _, err := os.Stat(keep); err == nil {
		t.Errorf("%s is there", keep)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("%s has %v, %v", dir, files, err)
	}
}

// TestEmptyFlag: what a script passes on of a variable that is not set is refused, and taken neither for "wherever it
// fits" nor for "no limit".
func TestEmptyFlag(t *testing.T) {
	for _, c := range []struct {
		line []string
		says string
	}{
		{[]string{"evacuate", "paris", "--to", ""}, "godwit: evacuate: --to is empty; see `godwit evacuate --help`\n"},
		{[]string{"migrate", "web", "sanjose", "--bandwidth="}, "godwit: migrate: --bandwidth is empty; see `godwit migrate --help`\n"},
		{[]string{"history", "--show", ""}, "godwit: history: --show is empty; see `godwit history --help`\n"},
		{[]string{"lab", "run", "x.yaml", "--out", ""}, "godwit: lab run: --out is empty; see `godwit lab run --help`\n"},
		{[]string{"abort", ""}, "godwit: abort: an argument is empty; see `godwit abort --help`\n"},
		{[]string{"completion", "bash", "x"}, "godwit: completion bash: takes no arguments; see `godwit completion bash --help`\n"},
	} {
		var out, errOut bytes.Buffer
		if status := run(c.line, &out, &errOut); status != exitUsage || errOut.String() != c.says || out.Len() > 0 {
			t.Errorf("%q: status %d, %q %q, want %q", c.line, status, errOut.String(), out.String(), c.says)
		}
	}
}

// TestHelpBeforeTheCommand: --help is of the command that is named, wherever it stands.
func TestHelpBeforeTheCommand(t *testing.T) {
	help := func(line string) string {
		var out, errOut bytes.Buffer
		if status := run(strings.Fields(line), &out, &errOut); status != exitDone || errOut.Len() > 0 {
			t.Errorf("godwit %s: status %d, %q", line, status, errOut.String())
		}
		return out.String()
	}
	want := help("lab run --help")
	for _, line := range []string{"--help lab run", "-h lab run", "lab -h run", "--json --help lab run"} {
		if got := help(line); got != want {
			t.Errorf("godwit %s: the help of another command: %.60s", line, got)
		}
	}
}

// TestNearMiss: a command with a slip in it is guessed, below another one too; a word that is near none is not.
func TestNearMiss(t *testing.T) {
	for line, want := range map[string]string{
		"histroy": "(did you mean history?)", "lab runn f": "(did you mean run?)", "host hsow": "(did you mean show?)", "lab x": "", "guest x": "", "nonsense": "",
	} {
		var errOut bytes.Buffer
		run(strings.Fields(line), io.Discard, &errOut)
		if said := errOut.String(); !strings.Contains(said, want) || want == "" && strings.Contains(said, "mean") {
			t.Errorf("godwit %s: %q, want %q", line, said, want)
		}
	}
}

// TestLimitSaysOfWhat: a rate that makes no sense is told with what it was to limit.
func TestLimitSaysOfWhat(t *testing.T) {
	var out, errOut bytes.Buffer
	status := run([]string{"limit", "m-00000001", "fast"}, &out, &errOut)
	if said := errOut.String(); status != exitUsage || !strings.HasPrefix(said, "godwit: limit m-00000001: rate fast: ") || !strings.Contains(said, "such as 50mbit") {
		t.Errorf("status %d, %q", status, said)
	}
}

// TestNoCells: who asks for no cell at all is not given all of them.
func TestNoCells(t *testing.T) {
	t.Setenv("GODWIT_IMAGE", t.TempDir())
	for _, n := range []string{"0", "-1"} {
		var errOut bytes.Buffer
		if status := run([]string{"lab", "faults", "--sample", n, "--out", t.TempDir()}, io.Discard, &errOut); status != exitUsage || !strings.Contains(errOut.String(), "--sample "+n+": ") {
			t.Errorf("status %d, %q", status, errOut.String())
		}
	}
}

// Every command has an example and says what it takes; a command of commands shows them, and
// by itself it has done nothing.
func TestEveryCommandExplainsItself(t *testing.T) {
	var each func(c *cobra.Command)
	each = func(c *cobra.Command) {
		if c.Short == "" || c.Example == "" {
			t.Errorf("%s has no words or no example", c.CommandPath())
		}
		var out bytes.Buffer
		words := append(strings.Fields(c.CommandPath())[1:], "--help")
		if status := run(words, &out, &out); status != exitDone || !strings.Contains(out.String(), "--json") || !strings.Contains(out.String(), "Examples:") {
			t.Errorf("%s: status %d, %s", strings.Join(words, " "), status, out.String())
		}
		if c.HasSubCommands() {
			var out, errOut bytes.Buffer
			if status := run(words[:len(words)-1], &out, &errOut); status != exitUsage || out.Len() > 0 || !strings.Contains(errOut.String(), "Examples:") {
				t.Errorf("%s: status %d, %q %q; want %d and the help", c.CommandPath(), status, out.String(), errOut.String(), exitUsage)
			}
		}
		for _, sub := range c.Commands() {
			each(sub)
		}
	}
	each(newRoot(&bytes.Buffer{}))
}

// --json prints one JSON value and nothing else.
func TestJSON(t *testing.T) {
	dir := t.TempDir()
	for _, line := range []string{"version --json", "lab check --json ../../examples/ci-basic.yaml", "init --json --out " + dir + " a b"} {
		var out, errOut bytes.Buffer
		if status := run(strings.Fields(line), &out, &errOut); status != exitDone || !json.Valid(out.Bytes()) || errOut.Len() > 0 {
			t.Errorf("godwit %s: status %d, %q, %q", line, status, out.String(), errOut.String())
		}
	}
}

// A fleet's certificates are not replaced by a word typed twice.
func TestInitKeepsAFleet(t *testing.T) {
	dir := t.TempDir()
	read := func() string {
		data, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	for _, c := range []struct {
		line   string
		status int
		anew   bool
	}{{"init a", exitDone, true}, {"init a", exitUsage, false}, {"init a b --force", exitDone, true}} {
		before := ""
		if c.status != exitDone || strings.Contains(c.line, "--force") {
			before = read()
		}
		if status := run(append(strings.Fields(c.line), "--out", dir), io.Discard, io.Discard); status != c.status || (read() != before) != c.anew {
			t.Errorf("godwit %s: status %d, CA made anew: %v", c.line, status, read() != before)
		}
	}
}

// Causes that were joined stand in one line; what is wrong in a file has a line each.
func TestErrorsInWords(t *testing.T) {
	joined := fmt.Errorf("stop: %w", errors.Join(errors.New("a: gone"), errors.New("b: gone")))
	if got := inWords(joined); got != "stop: a: gone; b: gone" {
		t.Errorf("%q", got)
	}
	_, err := scenario.Parse("f", []byte("name: x\nsites: 3\nexpect: 3\n"))
	if got := inWords(usageError{err}); strings.Count(got, "\n") != 1 {
		t.Errorf("%q", got)
	}
}

// Each line that tells what is wrong in a scenario file begins alike, as every error does.
func TestErrorsOfAFileAreLinesAlike(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("name: x\nsites: 3\nexpect: 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var errOut bytes.Buffer
	status := run([]string{"lab", "check", bad}, io.Discard, &errOut)
	lines := strings.Split(strings.TrimSuffix(errOut.String(), "\n"), "\n")
	if status != exitUsage || len(lines) != 2 {
		t.Errorf("status %d, %q", status, lines)
	}
	for i, line := range lines {
		if want := fmt.Sprintf("godwit: %s:%d:", bad, i+2); !strings.HasPrefix(line, want) {
			t.Errorf("%q; want it to begin with %s", line, want)
		}
	}
}

// anAgent answers for host a-1 with guests web and db, and a neighbour.
func anAgent(t *testing.T) (socket string) {
	t.Helper()
	mux := http.NewServeMux()
	answer := func(pattern string, value any) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
			json.NewEncoder(w).Encode(value) //nolint:errcheck // the client tells
		})
	}
	answer("GET /v1/host", api.HostInfo{Host: "a-1", Site: "a", Guests: []api.GuestInfo{{Name: "web"}, {Name: "db"}}, Neighbours: []api.NeighbourInfo{{Host: "b-1", Site: "b"}}})
	up, guests := true, 1
	answer("GET /v1/neighbours", []api.NeighbourInfo{{Host: "b-1", Site: "b", State: "up, 1 guest", Up: &up, Guests: &guests}})
	answer("GET /v1/doubts", []api.Doubt{{ID: "m-00000003", Guest: "web"}})
	answer("GET /v1/migrations", []record.Report{{ID: "m-00000001", Guest: "web", To: "b-1", Outcome: migration.Completed}, {ID: "m-00000002", Guest: "db", To: "b-1"}})
	answer("GET /v1/tunnels", []api.TunnelUse{{Guest: "web"}})
	answer("POST /v1/migrations/{id}/abort", nil)
	answer("POST /v1/migrations/{id}/bandwidth", nil)
	answer("POST /v1/guests/{name}/forget", nil)
	answer("GET /v1/ended", []any{})
	answer("POST /v1/guests/{name}/forget-away", api.Forgotten{Guest: "web"})
	mux.HandleFunc("POST /v1/plan", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusConflict)
		json.NewEncoder(w).Encode(migration.Problem{Code: migration.CodeCapacity, Text: "host b-1 is full"}) //nolint:errcheck // the client tells
	})
	return serveAgent(t, mux)
}

// serveAgent serves what stands in for an agent.
func serveAgent(t *testing.T, mux *http.ServeMux) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "agent.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go server.Serve(listener) //nolint:errcheck // it ends with the test
	t.Cleanup(func() { server.Close() })
	return socket
}

// What an agent answers is one JSON value with --json, and the status says how it went.
func TestAnswersAsJSON(t *testing.T) {
	socket := anAgent(t)
	for line, want := range map[string]int{
		"guest ls": exitDone, "guest show web": exitDone, "guest forget web": exitDone, "guest forget web --away": exitDone, "host ls": exitDone, "site show b": exitDone,
		"host show": exitDone, "host show b-1": exitDone, "site ls": exitDone,
		"abort m-00000002": exitDone, "limit m-00000002 5mbit": exitDone, "history": exitDone,
		"evacuate a-1": exitFailed, "evacuate a-1 --dry-run": exitFailed,
	} {
		var out, errOut bytes.Buffer
		status := run(append(strings.Fields(line), "--json", "--socket", socket), &out, &errOut)
		if status != want || !json.Valid(out.Bytes()) || errOut.Len() > 0 {
			t.Errorf("godwit %s: status %d, %q, %q; want %d and JSON", line, status, out.String(), errOut.String(), want)
		}
	}
	for line, want := range map[string]string{"evacuate b-1": "run it on host b-1", "evacuate c": "no such host", "evacuate a-1 --to a": "already", "evacuate a-1 --to c": "known: b-1",
		"evacuate a-1 --mode postcopy --transfer qemu-tcp": "migrate guests: mode postcopy goes with the transfers lanes and mptcp only"} {
		var out, errOut bytes.Buffer
		status := run(append(strings.Fields(line), "--socket", socket), &out, &errOut)
		if said := errOut.String(); status != exitUsage || strings.Count(said, "\n") != 1 || !strings.Contains(said, want) || out.Len() > 0 {
			t.Errorf("godwit %s: status %d, %q, %q; want %d and %q", line, status, out.String(), said, exitUsage, want)
		}
	}
	var out bytes.Buffer
	if status := run([]string{"evacuate", "a-1", "--socket", socket}, &out, &out); status != exitFailed || strings.Count(out.String(), "stays: host b-1 is full") < 2 ||
		!strings.Contains(out.String(), "0 of 2 guests of a-1 have moved") {
		t.Errorf("status %d: %s", status, out.String())
	}
}

// What `ls` and `show` print for people and for programs: show is of one, ls of all.
func TestLsAndShow(t *testing.T) {
	socket := anAgent(t)
	for line, want := range map[string]string{
		"host show":     "a-1 a this host, 2 guests web with",
		"host show a-1": "a-1 a this host, 2 guests web with",
		"host show b-1": "b-1 b up, 1 guest",
		"host ls":       "a-1 a this host, 2 guests b-1 b up, 1 guest",
		"site ls":       "a a-1 2 guests on a-1 b b-1",
		"site show b":   "b-1 up, 1 guest",
	} {
		var out, errOut bytes.Buffer
		if status := run(append(strings.Fields(line), "--socket", socket), &out, &errOut); status != exitDone || strings.Join(strings.Fields(out.String()), " ") != want {
			t.Errorf("godwit %s: status %d, %q %q; want %q", line, status, out.String(), errOut.String(), want)
		}
	}
	for line, key := range map[string]string{"guest show web": "name", "host show": "tunnels", "host show b-1": "host", "site show a": "hosts"} {
		var out bytes.Buffer
		var one map[string]any
		if run(append(strings.Fields(line), "--json", "--socket", socket), &out, io.Discard); json.Unmarshal(out.Bytes(), &one) != nil || one[key] == nil {
			t.Errorf("godwit %s --json: %s; want an object with %s", line, out.String(), key)
		}
	}
	for _, line := range []string{"guest ls", "host ls", "site ls", "history"} {
		var out bytes.Buffer
		var all []map[string]any
		if run(append(strings.Fields(line), "--json", "--socket", socket), &out, io.Discard); json.Unmarshal(out.Bytes(), &all) != nil || len(all) < 2 {
			t.Errorf("godwit %s --json: %s; want a list", line, out.String())
		}
	}
	var errOut bytes.Buffer
	if status := run([]string{"host", "show", "c", "--socket", socket}, io.Discard, &errOut); status != exitUsage || !strings.Contains(errOut.String(), "unknown to host a-1") {
		t.Errorf("an unknown host: status %d, %q", status, errOut.String())
	}
}

// TestHostsOf: of a site's hosts programs are told as much as of any host.
func TestHostsOf(t *testing.T) {
	up := true
	info := api.HostInfo{Host: "a-1", Site: "a", Guests: make([]api.GuestInfo, 2), Neighbours: []api.NeighbourInfo{{Host: "a-2", Site: "a", State: "up", Up: &up}, {Host: "b", Site: "b", State: "down"}}}
	for site, want := range map[string][]string{"a": {"a-1: this host, 2 guests", "a-2: up"}, "b": {"b: down"}, "c": nil} {
		var got []string
		for _, h := range hostsOf(info, site) {
			if got = append(got, h.Host+": "+h.State); h.Site != site || (h.Up == nil) != (h.Host == "b") {
				t.Errorf("%s: %+v", site, h)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v", site, got)
		}
	}
}

// TestRunsThatCannotBegin: commands of many runs that cannot do the first tell that alone, and no empty result.
func TestRunsThatCannotBegin(t *testing.T) {
	need.Lab(t)
	t.Setenv("GODWIT_IMAGE", t.TempDir())
	for _, line := range []string{"lab faults", "lab random --runs 1", "bench handover --rows idle", "bench memory --rows idle,churn"} {
		for _, flag := range []string{"", " --json"} {
			var out, errOut bytes.Buffer
			status := run(strings.Fields(line+flag+" --out "+t.TempDir()), &out, &errOut)
			var told struct{ Error migration.Problem }
			if flag != "" && (json.Unmarshal(out.Bytes(), &told) != nil || told.Error.Code != migration.CodeUsage) || flag == "" && out.Len() > 0 {
				t.Errorf("godwit %s%s: printed %q", line, flag, out.String())
			}
			if status != exitUsage || !strings.Contains(errOut.String(), "guest image not found") {
				t.Errorf("godwit %s%s: status %d, %q", line, flag, status, errOut.String())
			}
		}
	}
}
