package evacuate

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"godwit/agent/record"
	"godwit/migration"
)

// unreported is an agent that tells of a migration, and has no report of it.
type unreported struct {
	*aHost
	asked atomic.Int64
}

func (u *unreported) Report(context.Context, string) (record.Report, error) {
	if u.asked.Add(1) > 10000 {
		panic("it is asked without end")
	}
	return record.Report{}, errors.New("its answer cannot be read")
}

// TestNoReport: an evacuation whose agent has no report of a migration that is over asks for it as patiently as one
// that does not answer, and ends.
func TestNoReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := &unreported{aHost: &aHost{guests: guests("x")}}
		host.ends = func(string, string) (migration.Outcome, error) { return migration.Aborted, nil }
		got, err := Run(t.Context(), host, Request{To: "b", Width: 1})
		if err != nil || got.OK || len(got.Guests) != 1 {
			t.Fatalf("%+v, %v", got, err)
		}
		if g := got.Guests[0]; g.Outcome != "" || !strings.Contains(g.Reason, "is not known: its answer cannot be read") {
			t.Errorf("%+v: want why its outcome is not known", g)
		}
	})
}
