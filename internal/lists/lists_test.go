package lists

import (
	"slices"
	"strings"
	"testing"
)

func TestWithout(t *testing.T) {
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
		want := strings.Fields(c.want)
		if got := Without(want, strings.Fields(c.have)); !slices.Equal(got, c.missing) || !slices.Equal(want, strings.Fields(c.want)) {
			t.Errorf("%q without %q: %v", c.want, c.have, got)
		}
	}
}

func TestOrNone(t *testing.T) {
	for want, names := range map[string][]string{"none": nil, "web": {"web"}, "web, db": {"web", "db"}} {
		if got := OrNone(names); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
