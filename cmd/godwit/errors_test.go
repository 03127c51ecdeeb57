package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"godwit/agent"
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
	mux.HandleFunc("GET /v1/host", func(w http.ResponseWriter, _ *http.Request) {
		json.NewEncoder(w).Encode(agent.HostInfo{Host: "a-1", Site: "a"}) //nolint:errcheck // the client tells
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
