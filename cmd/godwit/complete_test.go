package main

import (
	"bytes"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/migration"
)

// A shell completes what the agent knows.
func TestCompletion(t *testing.T) {
	socket := anAgent(t)
	for line, want := range map[string]string{
		"migrate":                "db web",
		"migrate web":            "b b-1",
		"migrate web b":          "",
		"plan":                   "db web",
		"evacuate":               "a-1",
		"abort":                  "m-00000002",
		"watch":                  "m-00000001 m-00000002",
		"guest show":             "db web",
		"host show":              "a-1 b-1",
		"site show":              "a b",
		"evacuate a-1 --to":      "b b-1",
		"migrate web b --mode":   strings.Join(migration.Modes, " "),
		"recover":                "m-00000003 web",
		"history --show":         "m-00000001 m-00000002",
		"migrate web b --tunnel": strings.Join(migration.Tunnels, " "),
	} {
		offers(t, socket, line, want)
	}
	ended := withEnded(t, anEnd())
	for line, want := range map[string]string{
		"guest forget":                "mail web",
		"guest forget web":            "",
		"guest forget --away":         "gone",
		"guest describe --ended":      "mail",
		"guest describe --ended mail": "",
	} {
		offers(t, ended, line, want)
	}
}

// offers checks what a shell is offered after line.
func offers(t *testing.T, socket, line, want string) {
	t.Helper()
	var out bytes.Buffer
	typed := strings.Fields(line)
	at := len(typed)
	if strings.HasPrefix(typed[at-1], "--") {
		at--
	}
	words := slices.Concat([]string{"__complete"}, typed[:at], []string{"--socket=" + socket}, typed[at:], []string{""})
	status := run(words, &out, io.Discard)
	var got []string
	for _, l := range strings.Split(out.String(), "\n") {
		if name, _, _ := strings.Cut(l, "\t"); name != "" && !strings.HasPrefix(name, ":") {
			got = append(got, name)
		}
	}
	if strings.Join(got, " ") != want || status != exitDone {
		t.Errorf("%s: %v, want %s; status %d", line, got, want, status)
	}
}

// completed is what the whole program, main and all, offers a shell after these words.
func completed(t *testing.T, words ...string) (offered []string, directive string) {
	t.Helper()
	itself, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(itself, slices.Concat([]string{"__complete"}, words, []string{""})...)
	cmd.Env = append(os.Environ(), asGodwit+"=1")
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v, %s", words, err, &errOut)
	}
	for _, l := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		name, _, _ := strings.Cut(l, "\t")
		offered = append(offered, name)
	}
	return offered[:len(offered)-1], offered[len(offered)-1]
}

// What a completion script calls is no child process of ours; where no agent answers nothing is
// offered, nothing else is said, and the shell does not wait. Files are offered where one is taken.
func TestCompletionOfTheProgram(t *testing.T) {
	const files, nothing = ":0", ":4"
	silent := filepath.Join(t.TempDir(), "silent.sock")
	listener, err := net.Listen("unix", silent)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	before := completeTime
	defer func() { completeTime = before }()
	for _, c := range []struct{ line, want, directive string }{
		{"migrate --socket " + anAgent(t), "db web", nothing},
		{"migrate --socket " + filepath.Join(t.TempDir(), "none.sock"), "", nothing},
		{"migrate --socket " + silent, "", nothing},
		{"migrate --config " + filepath.Join(t.TempDir(), "none.yaml"), "", nothing},
		{"migrate web b --transfer", strings.Join(migration.Transfers, " "), nothing},
		{"guest", "adopt describe forget ls show", nothing},
		{"history", "", nothing},
		{"lab run", "", files},
		{"guest describe", "", files}, // a socket's path
		{"guest describe x.sock", "", nothing},
		{"help lab", "check down faults random run selftest up", nothing},
		{"help migrate", "", nothing},
		{"bench handover --variants", "godwit fresh moved mptcp tunnel", nothing},
	} {
		completeTime = time.Hour
		if strings.HasSuffix(c.line, silent) {
			completeTime = 100 * time.Millisecond
		}
		begun := time.Now()
		got, directive := completed(t, strings.Fields(c.line)...)
		if strings.Join(got, " ") != c.want || directive != c.directive {
			t.Errorf("%s: %v %s, want %s %s", c.line, got, directive, c.want, c.directive)
		}
		if took := time.Since(begun); completeTime < time.Second && took > 25*time.Second { // a client waits for 30 s by itself
			t.Errorf("%s: after %v", c.line, took)
		}
	}
}
