package agent

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// TestTimeoutsHaveNames: whoever bounds a wait takes a limit, unless its passing is no error.
func TestTimeoutsHaveNames(t *testing.T) {
	unnamed := map[string]bool{ // what happens when they pass is not an error of theirs
		"apiEvents": true, "apiCallGuest": true, "peerRelease": true, "abortLater": true, "peerLanding": true,
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || unnamed[f.Name.Name] {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok && strings.HasPrefix(s.Sel.Name, "WithTimeout") {
					t.Errorf("%s: %s waits without a named limit", path, f.Name.Name)
				}
				return true
			})
		}
	}
}
