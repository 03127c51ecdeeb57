package report

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"godwit/migration"
)

// everyWord is a report in which every phase, event, outcome, fate and code of the lists
// occurs.
func everyWord() *Report {
	r := sample()
	first := r.Migrations[0]
	first.Phases = nil
	for i, p := range migration.Phases {
		first.Phases = append(first.Phases, Phase{Name: string(p), StartS: float64(i), EndS: float64(i + 1)})
	}
	first.Survival = &Survival{}
	for _, f := range migration.Fates {
		first.Survival.Connections = append(first.Survival.Connections, Survivor{Kind: "tcp", Fate: string(f)})
	}
	r.Migrations = []Migration{first}
	r.Series.Events = nil
	for i, m := range migration.Moments {
		r.Series.Events = append(r.Series.Events, Event{AtS: 4 + float64(i), Name: string(m.Name), Guest: "web"})
	}
	for _, o := range migration.Outcomes {
		m := first
		m.Outcome, m.Phases = Outcome(o), nil
		r.Migrations = append(r.Migrations, m)
	}
	for _, c := range migration.Codes {
		m := first
		m.Outcome, m.Code, m.Phases = Aborted, c, nil
		r.Migrations = append(r.Migrations, m)
	}
	return r
}

// TestPageShowsEveryWord: what is added to the lists of package migration is on the page,
// each phase with a colour of its own, in the legend, the picture and the table.
func TestPageShowsEveryWord(t *testing.T) {
	var b bytes.Buffer
	if err := HTML(&b, everyWord()); err != nil {
		t.Fatal(err)
	}
	keep(t, "words", b.Bytes())
	page := b.String()
	has := func(what, text string) {
		if !strings.Contains(page, text) {
			t.Errorf("%s: the page lacks %q", what, text)
		}
	}
	colours := map[string]map[string]migration.Phase{}
	for _, p := range migration.Phases {
		name := phaseVar(string(p))
		has("legend", fmt.Sprintf(`<i style="background:var(--%s)"></i>%s</span>`, name, p))
		has("table", fmt.Sprintf("<th>%s</th>", p))
		if !regexp.MustCompile(fmt.Sprintf(`<rect[^>]*var\(--%s\)[^>]*><title>%s of migration 1`, name, p)).MatchString(page) {
			t.Errorf("no bar of phase %s with colour %s", p, name)
		}
		found := regexp.MustCompile(`--`+name+`: (#[0-9a-f]{6});`).FindAllStringSubmatch(pageStyle, -1)
		if len(found) != 2 {
			t.Errorf("phase %s: style.css has --%s %d times, want once for light and once for dark", p, name, len(found))
			continue
		}
		for i, scheme := range []string{"light", "dark"} {
			if colours[scheme] == nil {
				colours[scheme] = map[string]migration.Phase{}
			}
			if other, taken := colours[scheme][found[i][1]]; taken {
				t.Errorf("%s: %s and %s have the same colour", scheme, p, other)
			}
			colours[scheme][found[i][1]] = p
		}
	}
	for _, m := range migration.Moments {
		has("events", ">"+strings.ToLower(strings.ReplaceAll(string(m.Name), "_", " "))+"<")
	}
	for _, o := range migration.Outcomes {
		has("outcomes", ">"+string(o)+"<")
	}
	for _, f := range migration.Fates {
		has("fates", ">"+string(f)+"<")
	}
	for _, c := range migration.Codes {
		has("codes", ">"+string(Aborted)+": "+string(c)+"<")
	}
}

// TestNoSecondList: neither the page's parts nor the code around them spell a phase, an
// event or an outcome: they are package migration's.
func TestNoSecondList(t *testing.T) {
	ours := map[string]bool{}
	for _, p := range migration.Phases {
		ours[string(p)] = true
	}
	for _, m := range migration.Moments {
		ours[string(m.Name)] = true
	}
	for _, o := range migration.Outcomes {
		ours[string(o)] = true
	}
	for _, part := range []string{pageText, pageStyle, pageHover} {
		for _, word := range regexp.MustCompile(`\w+`).FindAllString(regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`).ReplaceAllString(part, ""), -1) {
			if ours[word] {
				t.Errorf("a part of the page spells %q", word)
			}
		}
	}
	for _, dir := range []string{".", "live"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if s, ok := n.(*ast.BasicLit); ok && s.Kind == token.STRING {
					if word, err := strconv.Unquote(s.Value); err == nil && ours[word] {
						t.Errorf("%s spells %q", path, word)
					}
				}
				return true
			})
		}
	}
}
