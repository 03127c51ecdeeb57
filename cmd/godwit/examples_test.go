package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"godwit/lab/scenario"
)

// TestExamplesAreListed: each file in examples/ has its words in docs/scenarios.md.
func TestExamplesAreListed(t *testing.T) {
	text, err := os.ReadFile("../../docs/scenarios.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(files) < 30 {
		t.Fatalf("%d examples, %v", len(files), err)
	}
	for _, file := range files {
		if !strings.Contains(string(text), "`"+filepath.Base(file)+"`") {
			t.Errorf("%s is not in docs/scenarios.md", filepath.Base(file))
		}
	}
}

// TestExamplesOfConnectionsThatMove: a run that the README has for connections that follow their guest fails where one
// stays on the tunnel.
func TestExamplesOfConnectionsThatMove(t *testing.T) {
	for _, file := range []string{"cross-subnet.yaml", "ring.yaml", "fifty.yaml", "commuters.yaml", "both-move.yaml"} {
		text, err := os.ReadFile(filepath.Join("../../examples", file))
		if err != nil {
			t.Fatal(err)
		}
		s, err := scenario.Parse(file, text)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(s.Expect, func(e scenario.Expect) bool { return e.Kind == scenario.ExpectMoved }) {
			t.Errorf("%s does not expect that connections moved", file)
		}
	}
}
