package lab

import (
	"net/netip"
	"slices"
	"testing"

	"godwit/agent/record"
	"godwit/migration"
)

// TestOthersAddresses: a next address that another machine took after the check is none of the guest's, nor is one of a
// migration that came to nothing.
func TestOthersAddresses(t *testing.T) {
	of := func(addr string) []migration.Address {
		return []migration.Address{{Prefix: netip.MustParsePrefix(addr + "/24")}}
	}
	old, planned, got := of("10.1.1.10"), of("10.2.1.10"), of("10.2.1.11")
	for name, c := range map[string]struct {
		report *record.Report
		want   []netip.Addr
	}{
		"as planned":          {&record.Report{Outcome: migration.Completed, Old: old, Next: planned}, nil},
		"taken":               {&record.Report{Outcome: migration.Completed, Old: old, Next: got}, migration.Bare(planned)},
		"it stayed":           {&record.Report{Outcome: migration.Aborted, Old: old, Next: planned}, migration.Bare(planned)},
		"kept its address":    {&record.Report{Outcome: migration.Completed, Network: "tunnel", Old: planned, Next: planned}, nil},
		"in doubt":            {&record.Report{Outcome: migration.InDoubt, Old: old, Next: planned}, nil},
		"nobody told its end": {nil, nil},
	} {
		m := &move{guest: "web", report: c.report, early: &record.Report{Old: old, Next: planned}}
		if others := m.others(); !slices.Equal(others, c.want) {
			t.Errorf("%s: %v, want %v", name, others, c.want)
		}
	}
	if others := (&move{report: &record.Report{Outcome: migration.Completed, Next: got}}).others(); others != nil {
		t.Errorf("what was planned is not known: %v", others)
	}
}
