package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"godwit/agent/api"
	"godwit/migration"
)

// refusing is an agent of host a-1 that refuses each question, with the code that it is asked by.
func refusing(t *testing.T) (socket string) {
	t.Helper()
	mux := http.NewServeMux()
	refuse := func(pattern string, code migration.Code, text string) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusConflict)
			json.NewEncoder(w).Encode(migration.Problem{Code: code, Text: text}) //nolint:errcheck // the client tells
		})
	}
	mux.HandleFunc("GET /v1/neighbours", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("[]")) }) //nolint:errcheck // the client tells
	mux.HandleFunc("GET /v1/host", func(w http.ResponseWriter, _ *http.Request) {
		json.NewEncoder(w).Encode(api.HostInfo{Host: "a-1", Site: "a"}) //nolint:errcheck // the client tells
	})
	refuse("POST /v1/migrations", migration.CodeUnknownGuest, "guest nope: not under care")
	refuse("POST /v1/plan", migration.CodeUnknownSite, "site nope: not known")
	refuse("POST /v1/migrations/{id}/abort", migration.CodeBusy, "it is being undone already")
	refuse("POST /v1/migrations/{id}/bandwidth", migration.CodeUsage, "none of that name")
	refuse("GET /v1/migrations/{id}/events", migration.CodeUsage, "not known")
	refuse("GET /v1/migrations", migration.CodeInternal, "two\nlines")
	return serveAgent(t, mux)
}

// wrongConfig is a configuration that cannot be read.
func wrongConfig(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "agent.yaml")
	if err := os.WriteFile(path, []byte("host: [\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// One rule for all commands: 2 where the same words would not do the next time either.
func TestStatus(t *testing.T) {
	socket, none := " --socket "+refusing(t), filepath.Join(t.TempDir(), "none")
	for line, want := range map[string]int{
		"guest show nope" + socket:           exitUsage,
		"host show nope" + socket:            exitUsage,
		"site show nope" + socket:            exitUsage,
		"evacuate nope" + socket:             exitUsage,
		"migrate nope b" + socket:            exitUsage,
		"plan web nope" + socket:             exitUsage,
		"limit m-00000001 0" + socket:        exitUsage,
		"watch m-00000001" + socket:          exitUsage,
		"abort m-00000001" + socket:          exitFailed,
		"history" + socket:                   exitFailed,
		"history --socket " + none:           exitFailed, // nobody answers now
		"history --config " + none:           exitUsage,
		"history --config " + wrongConfig(t): exitUsage,
		"agent --config " + none:             exitUsage,
		"agent --config " + wrongConfig(t):   exitUsage,
		"doctor --config " + none:            exitUsage,
		"guest adopt " + none:                exitUsage,
	} {
		var out, errOut bytes.Buffer
		status := run(strings.Fields(line), &out, &errOut)
		if said := errOut.String(); status != want || out.Len() > 0 || strings.Count(said, "\n") != 1 {
			t.Errorf("godwit %s: status %d, %q %q; want %d and one line", line, status, out.String(), said, want)
		}
	}
}

// With --json an error is one value on standard output, with its code, beside the line for people;
// the status is the same.
func TestErrorsAsJSON(t *testing.T) {
	socket, none := " --socket "+refusing(t), filepath.Join(t.TempDir(), "none")
	for line, want := range map[string]migration.Code{
		"migrate nope b" + socket:         migration.CodeUnknownGuest,
		"guest show nope" + socket:        migration.CodeUnknownGuest,
		"plan web nope" + socket:          migration.CodeUnknownSite,
		"abort m-00000001" + socket:       migration.CodeBusy,
		"watch m-00000001" + socket:       migration.CodeUsage,
		"history" + socket:                migration.CodeInternal,
		"history --socket " + none:        migration.CodePeer,
		"history --config " + none:        migration.CodeUsage,
		"migrate web":                     migration.CodeUsage,
		"migrate web b --nope":            migration.CodeUsage,
		"nonsense":                        migration.CodeUsage,
		"guest":                           migration.CodeUsage,
		"init --out /proc/none a":         codeFailed,
		"lab check " + wrongConfig(t):     migration.CodeUsage,
		"lab run " + none:                 migration.CodeUsage,
		"sim":                             migration.CodeUsage,
		"metrics --socket " + t.TempDir(): migration.CodeUsage,
	} {
		var plain, out, errOut bytes.Buffer
		status := run(strings.Fields(line), io.Discard, &plain)
		got := run(append(strings.Fields(line), "--json"), &out, &errOut)
		var answer struct{ Error migration.Problem }
		err := json.Unmarshal(out.Bytes(), &answer)
		if err != nil || answer.Error.Code != want || answer.Error.Text == "" || got != status {
			t.Errorf("godwit %s --json: status %d, without %d; %q, want code %s", line, got, status, &out, want)
		}
		if said := errOut.String(); said != "godwit: "+answer.Error.Text+"\n" || line != "guest" && said != plain.String() {
			t.Errorf("godwit %s --json says %q, without %q", line, said, &plain)
		}
	}
}

// TestWhereJSONIsAskedFor: an error is told in JSON where the flag says so, in whatever spelling, and not where it is
// an argument.
func TestWhereJSONIsAskedFor(t *testing.T) {
	for line, want := range map[string]bool{
		"lab check --nope --json": true, "--json lab check --nope": true, "lab check --nope --json=true": true, "lab check --json=1 --nope": true,
		"lab check --nope": false, "lab check --nope --json=false": false, "lab check --nope --json=": false, "lab check -- --json": false, "lab check --nope -- --json": false,
	} {
		var out bytes.Buffer
		status := run(strings.Fields(line), &out, io.Discard)
		if got := json.Valid(out.Bytes()); status != exitUsage || got != want || !want && out.Len() > 0 {
			t.Errorf("godwit %s: status %d, %q; in JSON: want %v", line, status, &out, want)
		}
	}
}

// A stream for programs ends with the error; one value that was printed stays the only one.
func TestErrorEndsAStream(t *testing.T) {
	for _, c := range []struct {
		stream bool
		want   string
	}{{true, "{}\n{\"error\":{\"code\":\"busy\",\"text\":\"why\"}}\n"}, {false, "{}\n"}} {
		var out bytes.Buffer
		root := newRoot(&out)
		stdout := &output{Writer: &out}
		root.SetOut(stdout)
		say := printLine
		if !c.stream {
			say = func(c *cobra.Command, value any) error { return printJSON(c.OutOrStdout(), value) }
		}
		if err := say(root, struct{}{}); err != nil {
			t.Fatal(err)
		}
		if stdout.fail(migration.CodeBusy, "why"); out.String() != c.want {
			t.Errorf("%q, want %q", &out, c.want)
		}
	}
}
