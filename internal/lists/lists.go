// Package lists is what package slices lacks.
package lists

import (
	"slices"
	"strings"
)

// Without are those of want that are not in have.
func Without[T comparable](want, have []T) []T {
	set := map[T]bool{}
	for _, v := range have {
		set[v] = true
	}
	return slices.DeleteFunc(slices.Clone(want), func(v T) bool { return set[v] })
}

// OrNone are the names, for people.
func OrNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
