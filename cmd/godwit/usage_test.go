package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"godwit/agent"
	"godwit/lab/scenario"
)

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
		"lab down a b", "lab down zzzz", "lab down " + "x/../../" + dir, "watch a b", "recover a b", "version x",
		"init", "init --out " + dir + " ca", "init --out " + dir + " a a", "init --out " + dir + " a/b",
		"migrate web", "migrate web b --mode fast", "migrate web b --transfer quic", "migrate web b --network x", "migrate web b --tunnel x",
		"migrate web b --downtime 3", "migrate web b --downtime 0s", "migrate web b --bandwidth 5", "plan web b --mode fast", "limit m-00000001 fast",
	} {
		var out, errOut bytes.Buffer
		status := run(strings.Fields(line), &out, &errOut)
		if said := errOut.String(); status != exitUsage || strings.Count(said, "\n") != 1 || !strings.HasPrefix(said, "godwit: ") || out.Len() > 0 {
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

// Every command has an example and says what it takes; a command of commands shows them.
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

func TestHostsOf(t *testing.T) {
	info := agent.HostInfo{Host: "a-1", Site: "a", Guests: make([]agent.GuestInfo, 2), Neighbours: []agent.NeighbourInfo{{Host: "a-2", Site: "a", State: "up"}, {Host: "b", Site: "b", State: "down"}}}
	for site, want := range map[string][]siteHost{"a": {{"a-1", "this host, 2 guests"}, {"a-2", "up"}}, "b": {{"b", "down"}}, "c": nil} {
		if got := hostsOf(info, site); !slices.Equal(got, want) {
			t.Errorf("%s: %v", site, got)
		}
	}
}
