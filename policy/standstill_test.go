package policy

import (
	"testing"
	"time"
)

func TestStandstill(t *testing.T) {
	s := Standstill{Patience: 20 * time.Second}
	zero := time.Now()
	for _, c := range []struct {
		after time.Duration
		total int64
		want  bool
	}{
		{0, 0, false}, // not a byte yet
		{19 * time.Second, 0, false},
		{19500 * time.Millisecond, 1, false}, // one byte counts
		{39 * time.Second, 1, false},
		{39500 * time.Millisecond, 1, true},
		{40 * time.Second, 2, false},
	} {
		if got := s.See(zero.Add(c.after), c.total); got != c.want {
			t.Errorf("after %v, %d bytes: %v", c.after, c.total, got)
		}
	}
}
