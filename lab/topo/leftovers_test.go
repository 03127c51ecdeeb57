package topo

import (
	"slices"
	"strings"
	"testing"

	"godwit/internal/lasting/lastingtest"
)

// TestLeftoversUnseen: where devices cannot be looked for, that is said, and not that there are none.
func TestLeftoversUnseen(t *testing.T) {
	var left []string
	if err := lastingtest.WithoutDescriptors(func() { left = Leftovers(testID(8)) }); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(left, func(what string) bool { return strings.HasPrefix(what, "look for devices: ") }) {
		t.Errorf("leftovers: %q", left)
	}
}
