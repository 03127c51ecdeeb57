// Package lists is what package slices lacks.
package lists

import "slices"

// Without are those of want that are not in have.
func Without[T comparable](want, have []T) []T {
	set := map[T]bool{}
	for _, v := range have {
		set[v] = true
	}
	return slices.DeleteFunc(slices.Clone(want), func(v T) bool { return set[v] })
}
