package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDocumentsNameTests: each `go test … -run PATTERN` of the README and docs has a test to run.
func TestDocumentsNameTests(t *testing.T) {
	asked := regexp.MustCompile("`[^`]*go test \\./([^ `]*) [^`]*?-run '?([^ '`]+)[^`]*`")
	found := regexp.MustCompile(`(?m)^func (Test\w+|Fuzz\w+|Benchmark\w+)\(`)
	documents, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	patterns := 0
	for _, document := range append(documents, "../../README.md") {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range asked.FindAllStringSubmatch(string(text), -1) {
			folder, deep := strings.CutSuffix(m[1], "...")
			tests := ""
			err := filepath.WalkDir(filepath.Join("../..", folder), func(path string, d os.DirEntry, err error) error {
				if err == nil && strings.HasSuffix(path, "_test.go") && (deep || filepath.Dir(path) == filepath.Join("../..", folder)) {
					source, rerr := os.ReadFile(path)
					for _, name := range found.FindAllStringSubmatch(string(source), -1) {
						tests += name[1] + "\n"
					}
					return rerr
				}
				return err
			})
			if err != nil {
				t.Errorf("%s: %s: %v", document, m[0], err)
			}
			for one := range strings.SplitSeq(strings.ReplaceAll(m[2], `\|`, "|"), "|") { // a table writes | so
				patterns++
				one, _, _ = strings.Cut(one, "/")
				if ok, err := regexp.MatchString("(?m)^.*"+one, tests); !ok {
					t.Errorf("%s: %s: there is no test %q (%v)", document, m[0], one, err)
				}
			}
		}
	}
	if patterns < 30 {
		t.Errorf("%d patterns were found, want those of the README", patterns)
	}
}
