package agent

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/agent/record"
	"godwit/migration"
	"godwit/vm"
)

func TestOlder(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"7.2.0", "10.0.0", true},
		{"10.0.0", "7.2.0", false},
		{"10.0.0", "10.0.0", false},
		{"10.0.0", "10.0.5", false}, // patch releases migrate to each other
		{"10.0", "10.1.0", true},
		{"10.10.0", "10.9.0", false},
		{"9.2.4 (Debian 1:9.2.4)", "10.0.0", true},
		{"10", "10.0.1", false},
		{"", "10.0.0", true},
	} {
		if got := older(c.a, c.b); got != c.want {
			t.Errorf("%q older than %q: %v", c.a, c.b, got)
		}
	}
}

func TestMissingFlags(t *testing.T) {
	for _, c := range []struct {
		want, have string
		missing    []string
	}{
		{"", "", nil},
		{"", "fpu", nil},
		{"fpu sse", "sse  vmx\tfpu", nil},
		{"fpu avx2 avx", "fpu avx512", []string{"avx2", "avx"}},
		{"fpu", "", []string{"fpu"}},
	} {
		if got := without(strings.Fields(c.want), strings.Fields(c.have)); !slices.Equal(got, c.missing) {
			t.Errorf("%q of %q: %v", c.want, c.have, got)
		}
	}
}

// refusal checks that err is a usage problem of one line that has all of words.
func refusal(t *testing.T, err error, words ...string) {
	t.Helper()
	var problem *migration.Problem
	if !errors.As(err, &problem) || problem.Code != migration.CodeUsage {
		t.Fatalf("%v: want a usage problem", err)
	}
	for _, w := range words {
		if !strings.Contains(problem.Text, w) {
			t.Errorf("%q: want %q in it", problem.Text, w)
		}
	}
	if strings.ContainsAny(problem.Text, "\n") || strings.Contains(problem.Text, "%!") {
		t.Errorf("%q: want one line of words", problem.Text)
	}
}

// TestAutoIsTold: what `auto` became is in the report, also of a guest that nobody asks, as it keeps its address.
func TestAutoIsTold(t *testing.T) {
	plan := migration.Plan{Guest: "web", Mode: "precopy", Transfer: "auto", Network: "tunnel"}
	m := &outgoing{guest: &Guest{}, plan: plan, work: &sourceWork{facts: vm.Facts{Hold: vm.HoldAck}}, rec: record.New("paris", plan, time.Now())}
	err := m.checkGuest(t.Context())
	if rep := m.rec.Snapshot(); err != nil || rep.Transfer != "lanes" || rep.Mode != "precopy" || rep.Network != "tunnel" {
		t.Errorf("%s, %s, %s, %v; want precopy, lanes, tunnel", rep.Mode, rep.Transfer, rep.Network, err)
	}
}
