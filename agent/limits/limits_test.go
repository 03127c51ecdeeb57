package limits

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"godwit/agent/peer"
	"godwit/migration"
)

func TestLimitsAreDocumented(t *testing.T) {
	data, err := os.ReadFile("../../docs/agent.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	seen := map[string]bool{}
	for _, l := range all {
		if seen[l.Name] || l.For <= 0 || l.of == "" {
			t.Errorf("%+v", l)
		}
		seen[l.Name] = true
		rows = append(rows, fmt.Sprintf("| `%s` | %v | %s |", l.Name, l.For, l.of))
	}
	if table := strings.Join(rows, "\n"); !strings.Contains(string(data), table+"\n\n") {
		t.Errorf("docs/agent.md has not this table of limits:\n%s", table)
	}
}

func TestLimitIsNamed(t *testing.T) {
	long, cancel := Limit{Name: "tea", For: time.Hour}.On(t.Context())
	defer cancel()
	if err := Says(long, errors.New("early")); err.Error() != "early" {
		t.Errorf("before it passed: %v", err)
	}
	l := Limit{Name: "tea", For: time.Millisecond}
	ctx, cancel := l.On(t.Context())
	defer cancel()
	<-ctx.Done()
	err := Says(ctx, fmt.Errorf("boil: %w", ctx.Err()))
	if err.Error() != "boil: context deadline exceeded (limit tea of 1ms passed)" || peer.AsProblem(err).Code != migration.CodeTimeout {
		t.Errorf("%v, %s", err, peer.AsProblem(err).Code)
	}
	outer, cancelOuter := (Limit{Name: "supper", For: time.Millisecond}).On(context.Background())
	defer cancelOuter()
	<-outer.Done()
	if again := Says(outer, err); again.Error() != err.Error() {
		t.Errorf("named twice: %v", again)
	}
	away := Says(ctx, &peer.Unreachable{Host: "rome", Cause: ctx.Err()})
	var unreachable *peer.Unreachable
	if !errors.As(away, &unreachable) || peer.AsProblem(away).Code != migration.CodePeer || !strings.Contains(away.Error(), "limit tea") {
		t.Errorf("%v", away)
	}
	if Says(ctx, nil) != nil {
		t.Error("an error of nothing")
	}
	asked, stop := context.WithCancel(t.Context())
	stop()
	if err := Says(asked, asked.Err()); !errors.Is(err, context.Canceled) || err.Error() != "context canceled" {
		t.Errorf("cancelled: %v", err)
	}
}

func TestLimitsOfCrowds(t *testing.T) {
	l := Limit{Name: "tea", For: 10 * time.Second}
	for _, c := range []struct {
		connections, steps int
		want               time.Duration
	}{
		{-5, 1, l.For}, {0, 1, l.For}, {1000, 1, l.For}, {10000, 1, time.Minute}, {10000, 4, 4 * time.Minute},
		{1 << 40, 1, 2 * time.Minute},           // a peer says so
		{-2e12, 1, l.For}, {-1 << 61, 4, l.For}, // a guest says so: in ns it would be years
	} {
		if got := l.ForCrowd(c.connections, c.steps); got.For != c.want || got.Name != l.Name {
			t.Errorf("%d connections, %d steps: %v, want %v", c.connections, c.steps, got.For, c.want)
		}
	}
}
