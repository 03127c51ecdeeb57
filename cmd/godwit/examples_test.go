package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
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
