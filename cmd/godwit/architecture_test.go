package main

import (
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestArchitectureNamesImports: the tables of packages in docs/architecture.md name what of ours each imports, no less
// and no more. A row is also of what is below its packages and has none of its own.
func TestArchitectureNamesImports(t *testing.T) {
	text, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	rowOf, may := map[string]string{}, map[string]string{} // a row is named as its first cell
	for line := range strings.Lines(string(text)) {
		if cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|"); len(cells) == 4 {
			for _, p := range quoted(inParentheses.ReplaceAllString(cells[0], "")) {
				rowOf[p], may[cells[0]] = cells[0], cells[2]
			}
		}
	}
	ours, imports := ourImports(t), map[string]map[string]bool{} // by row
	for p, all := range ours {
		above := p
		for rowOf[above] == "" && above != "." {
			above = filepath.Dir(above)
		}
		row := rowOf[above]
		if row == "" {
			t.Errorf("%s is in no table", p)
			continue
		}
		rowOf[p] = row
		if imports[row] == nil {
			imports[row] = map[string]bool{}
		}
		for _, other := range all {
			imports[row][other] = true
		}
	}
	for row, text := range may {
		if strings.HasPrefix(strings.TrimSpace(text), "all ") {
			continue
		}
		named := map[string]bool{}
		for _, name := range quoted(text) {
			below, many := strings.CutSuffix(name, "…")
			for p := range ours {
				if rowOf[p] != row && (p == name || many && strings.HasPrefix(p, below) && imports[row][p]) {
					named[p] = true
				}
			}
			if _, known := ours[name]; !known && !many && !strings.HasPrefix(name, "x/") {
				t.Errorf("%s: there is no package %s", row, name)
			}
		}
		maps.DeleteFunc(imports[row], func(p string, _ bool) bool { return rowOf[p] == row })
		if want := slices.Sorted(maps.Keys(imports[row])); !slices.Equal(slices.Sorted(maps.Keys(named)), want) {
			t.Errorf("%s: of ours it imports %q, the table says %q", row, want, slices.Sorted(maps.Keys(named)))
		}
	}
}

var inParentheses, inQuotes = regexp.MustCompile(`\([^)]*\)`), regexp.MustCompile("`([^`]+)`")

func quoted(text string) (out []string) {
	for _, m := range inQuotes.FindAllStringSubmatch(text, -1) {
		out = append(out, m[1])
	}
	return out
}

// ourImports are all packages of the module, and what of it each imports; its tests count where it has nothing else.
func ourImports(t *testing.T) map[string][]string {
	out, tests := map[string][]string{}, map[string][]string{}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && slices.Contains([]string{".git", "bin", "build"}, d.Name()) {
			return filepath.SkipDir
		}
		if err != nil || filepath.Ext(path) != ".go" {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		p, _ := filepath.Rel("../..", filepath.Dir(path))
		to := out
		if strings.HasSuffix(path, "_test.go") {
			to = tests
		}
		to[p] = slices.Grow(to[p], len(file.Imports))
		for _, spec := range file.Imports {
			if of, ours := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), "godwit/"); ours {
				to[p] = append(to[p], of)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for p, all := range tests {
		if _, more := out[p]; !more {
			out[p] = all
		}
	}
	return out
}
