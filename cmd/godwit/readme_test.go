package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// pages are the README and docs.
func pages(t *testing.T) (text string) {
	t.Helper()
	documents, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range append(documents, "../../README.md") {
		data, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		text += string(data)
	}
	return text
}

// TestCommandsAreDocumented: the pages have each command, with each of its flags.
func TestCommandsAreDocumented(t *testing.T) {
	text := pages(t)
	var each func(c *cobra.Command)
	each = func(c *cobra.Command) {
		if c.Name() == "completion" { // cobra's
			return
		}
		if !c.HasSubCommands() && c.Name() != "help" {
			words := strings.Fields(c.CommandPath())[1:]
			if !regexp.MustCompile("[`: ]" + strings.Join(words, " ") + `\b`).MatchString(text) {
				t.Errorf("no page has %s", c.CommandPath())
			}
		}
		for _, flag := range regexp.MustCompile(`(?m)^ +(?:-\w, )?(--[\w-]+)`).FindAllStringSubmatch(c.Flags().FlagUsages(), -1) {
			if !regexp.MustCompile(flag[1] + `\b`).MatchString(text) {
				t.Errorf("no page has %s %s", c.CommandPath(), flag[1])
			}
		}
		for _, sub := range c.Commands() {
			each(sub)
		}
	}
	root := newRoot(io.Discard)
	for _, c := range root.Commands() {
		each(c)
	}
}

// TestVariablesAreDocumented: the pages have each variable of the environment that a person may set.
func TestVariablesAreDocumented(t *testing.T) {
	text := pages(t)
	variable := regexp.MustCompile(`"(GODWIT_[A-Z_]+)"`)
	ours := regexp.MustCompile(`^GODWIT_(LAB|TEST)_`) // what a lab or a test tells its own processes
	var found []string
	err := filepath.WalkDir("../..", func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", "bin", "build"}, d.Name()):
			return filepath.SkipDir
		case !strings.HasSuffix(path, ".go"):
			return nil
		}
		source, err := os.ReadFile(path)
		for _, m := range variable.FindAllStringSubmatch(string(source), -1) {
			if name := m[1]; !slices.Contains(found, name) && (!ours.MatchString(name) || name == "GODWIT_TEST_OUT") {
				found = append(found, name)
			}
		}
		return err
	})
	if err != nil || len(found) < 9 {
		t.Fatalf("%v, %v", found, err)
	}
	for _, name := range found {
		if !strings.Contains(text, name) {
			t.Errorf("no page has %s", name)
		}
	}
}

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
