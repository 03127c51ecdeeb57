package record

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"godwit/migration"
)

// TestWatchAfterAnEarlierAgent: who has heard more than there is, as of an agent before this one, hears at once that
// this one counts anew; who has heard all waits.
func TestWatchAfterAnEarlierAgent(t *testing.T) {
	for heard, waits := range map[int]time.Duration{1: time.Minute, 2: 0, 7: 0} {
		synctest.Test(t, func(t *testing.T) {
			r := New("paris", migration.Plan{ID: "m-00000001"}, time.Now())
			r.Note("begun")
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			asked := time.Now()
			answer := r.Watch(ctx, heard)
			if took := time.Since(asked); took != waits || answer.Born == 0 || len(answer.Events) != 0 {
				t.Errorf("%d heard: %+v after %v", heard, answer, took)
			}
		})
	}
}
