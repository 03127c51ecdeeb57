package agent

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestFirstWords: a guest is waited for as long as it has not answered who waits for it, and
// not for long.
func TestFirstWords(t *testing.T) {
	for name, c := range map[string]struct {
		wanted, least, most uint64 // frames; ms
		broken, spoke       bool
	}{
		"nobody waits":                  {wanted: 0, most: 0, spoke: true},
		"it answers after 20 ms":        {wanted: 3, least: 20, most: 25, spoke: true},
		"one waits":                     {wanted: 1, least: 10, most: 15, spoke: true},
		"it does not answer":            {wanted: 1000, least: 100, most: 100},
		"its statistics cannot be read": {wanted: 3, broken: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			spoken := func() (uint64, error) {
				if c.broken {
					return 0, errors.New("no such device")
				}
				ms := time.Since(begun).Milliseconds()
				return uint64(max(0, ms/5-1)), nil
			}
			if spoke := awaitWords(t.Context(), spoken, c.wanted); spoke != c.spoke {
				t.Errorf("%s: it spoke: %v", name, spoke)
			}
			if d := uint64(time.Since(begun).Milliseconds()); d < c.least || d > c.most {
				t.Errorf("%s: waited for %d ms", name, d)
			}
		})
	}
}
