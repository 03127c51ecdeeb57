package agent

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"godwit/agent/peer"
	"godwit/migration"
)

func TestLimitsAreDocumented(t *testing.T) {
	data, err := os.ReadFile("../docs/agent.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	seen := map[string]bool{}
	for _, l := range limits {
		if seen[l.name] || l.d <= 0 || l.of == "" {
			t.Errorf("%+v", l)
		}
		seen[l.name] = true
		rows = append(rows, fmt.Sprintf("| `%s` | %v | %s |", l.name, l.d, l.of))
	}
	if table := strings.Join(rows, "\n"); !strings.Contains(string(data), table+"\n\n") {
		t.Errorf("docs/agent.md has not this table of limits:\n%s", table)
	}
}

// TestTimeoutsHaveNames: whoever bounds a wait takes a limit, unless its passing is no error.
func TestTimeoutsHaveNames(t *testing.T) {
	unnamed := map[string]bool{ // what happens when they pass is not an error of theirs
		"limits.go on": true, "api.go apiEvents": true, "api.go apiCallGuest": true, "released.go peerRelease": true,
		"release.go abortLater": true, "recover.go peerLanding": true,
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
			if !ok || unnamed[path+" "+f.Name.Name] {
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

func TestLimitIsNamed(t *testing.T) {
	long, cancel := limit{name: "tea", d: time.Hour}.on(t.Context())
	defer cancel()
	if err := says(long, errors.New("early")); err.Error() != "early" {
		t.Errorf("before it passed: %v", err)
	}
	l := limit{name: "tea", d: time.Millisecond}
	ctx, cancel := l.on(t.Context())
	defer cancel()
	<-ctx.Done()
	err := says(ctx, fmt.Errorf("boil: %w", ctx.Err()))
	if err.Error() != "boil: context deadline exceeded (limit tea of 1ms passed)" || peer.AsProblem(err).Code != migration.CodeTimeout {
		t.Errorf("%v, %s", err, peer.AsProblem(err).Code)
	}
	outer, cancelOuter := (limit{name: "supper", d: time.Millisecond}).on(context.Background())
	defer cancelOuter()
	<-outer.Done()
	if again := says(outer, err); again.Error() != err.Error() {
		t.Errorf("named twice: %v", again)
	}
	away := says(ctx, &peer.Unreachable{Host: "rome", Cause: ctx.Err()})
	var unreachable *peer.Unreachable
	if !errors.As(away, &unreachable) || peer.AsProblem(away).Code != migration.CodePeer || !strings.Contains(away.Error(), "limit tea") {
		t.Errorf("%v", away)
	}
	if says(ctx, nil) != nil {
		t.Error("an error of nothing")
	}
	asked, stop := context.WithCancel(t.Context())
	stop()
	if err := says(asked, asked.Err()); !errors.Is(err, context.Canceled) || err.Error() != "context canceled" {
		t.Errorf("cancelled: %v", err)
	}
}

func TestLimitsOfCrowds(t *testing.T) {
	l := limit{name: "tea", d: 10 * time.Second}
	for _, c := range []struct {
		connections, steps int
		want               time.Duration
	}{
		{-5, 1, l.d}, {0, 1, l.d}, {1000, 1, l.d}, {10000, 1, time.Minute}, {10000, 4, 4 * time.Minute},
		{1 << 40, 1, 2 * time.Minute}, // a peer says so
	} {
		if got := l.forCrowd(c.connections, c.steps); got.d != c.want || got.name != l.name {
			t.Errorf("%d connections, %d steps: %v, want %v", c.connections, c.steps, got.d, c.want)
		}
	}
}
