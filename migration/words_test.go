package migration

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// constants are the values of every constant of words.go, by their type.
func constants(t *testing.T) map[string][]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "words.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok || len(v.Values) != 1 {
			return true
		}
		of, named := v.Type.(*ast.Ident)
		value, literal := v.Values[0].(*ast.BasicLit)
		if named && literal {
			word, err := strconv.Unquote(value.Value)
			if err != nil {
				t.Fatal(err)
			}
			out[of.Name] = append(out[of.Name], word)
		}
		return true
	})
	return out
}

func words[W ~string](list []W) []string {
	var out []string
	for _, w := range list {
		out = append(out, string(w))
	}
	return out
}

// TestListsAreWhole: a word that is declared is in its list, in the same order.
func TestListsAreWhole(t *testing.T) {
	var events []string
	for _, m := range Moments {
		events = append(events, string(m.Name))
	}
	declared := constants(t)
	for kind, list := range map[string][]string{
		"Phase": words(Phases), "EventName": events, "Role": words(Roles), "Fate": words(Fates), "Outcome": words(Outcomes), "Code": words(Codes),
	} {
		if !slices.Equal(declared[kind], list) {
			t.Errorf("%s: declared %v, listed %v", kind, declared[kind], list)
		}
	}
}

// TestBlockingEventsArePre: an event that blocks comes before what it is named for.
func TestBlockingEventsArePre(t *testing.T) {
	for _, m := range Moments {
		if m.Blocks != strings.HasPrefix(string(m.Name), "PRE_") {
			t.Errorf("%s blocks: %v", m.Name, m.Blocks)
		}
		if m.Where != "source" && m.Where != "both" {
			t.Errorf("%s is told at %q", m.Name, m.Where)
		}
	}
	if _, ok := MomentOf("NONE"); ok {
		t.Error("an event of no name was found")
	}
}

// TestDocumented: the pages name every word, and the table of events is this list.
func TestDocumented(t *testing.T) {
	report, hooks := read(t, "../docs/report.md"), read(t, "../docs/hooks.md")
	for _, list := range [][]string{words(Phases), words(Outcomes), words(Fates), words(Codes)} {
		for _, w := range list {
			if !strings.Contains(report, "`"+w+"`") {
				t.Errorf("docs/report.md does not name `%s`", w)
			}
		}
	}
	var want []string
	for _, m := range Moments {
		blocks := ""
		if m.Blocks {
			blocks = "yes"
		}
		want = append(want, fmt.Sprintf("| `%s` | %s | %s | %s |", m.Name, blocks, m.Where, m.Means))
	}
	if table := strings.Join(want, "\n"); !strings.Contains(hooks, table+"\n\n") {
		t.Errorf("docs/hooks.md has not this table of events:\n%s", table)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
