package guest

import "testing"

// TestJoinsSince: what joined in an earlier try of a handover counts on, whether or not it still has the old address.
func TestJoinsSince(t *testing.T) {
	unable := func(n int) []Unable { return make([]Unable, n) }
	before := Joins{Total: 10, Joined: 5, Ended: 2, Unable: unable(2), Omitted: 1}
	for name, c := range map[string]struct {
		before                        *Joins
		then                          Joins
		total, joined, ended, unables int
	}{
		"the first try":                     {nil, before, 10, 5, 2, 2},
		"nothing was withdrawn":             {&before, Joins{Total: 8, Joined: 6, Unable: unable(2)}, 10, 6, 2, 2},
		"what had joined was":               {&before, Joins{Total: 3, Unable: unable(3)}, 10, 5, 2, 3},
		"and one has come late":             {&before, Joins{Total: 3, Joined: 1, Unable: unable(2)}, 10, 6, 2, 2},
		"and one has ended":                 {&before, Joins{Total: 3, Ended: 1, Unable: unable(2)}, 10, 5, 3, 2},
		"all was withdrawn, or has ended":   {&before, Joins{}, 10, 5, 5, 0},
		"who could not follow has ended":    {&Joins{Total: 3, Unable: unable(3)}, Joins{}, 3, 0, 3, 0},
		"or some, and one has followed":     {&Joins{Total: 3, Unable: unable(3)}, Joins{Total: 1, Joined: 1}, 3, 1, 2, 0},
		"more connections have begun since": {&before, Joins{Total: 12, Joined: 12}, 14, 12, 2, 0},
	} {
		got := c.then.Since(c.before)
		if got.Total != c.total || got.Joined != c.joined || got.Ended != c.ended || len(got.Unable) != c.unables {
			t.Errorf("%s: %+v", name, got)
		}
		if got.Total != got.Joined+got.Ended+len(got.Unable)+got.Omitted {
			t.Errorf("%s: %+v is no sum", name, got)
		}
	}
	first, again := Joins{Endpoints: []uint8{9, 10}}, Joins{Endpoints: []uint8{10, 11}}
	if got := again.Since(&first).Endpoints; string(got) != "\t\n\v" {
		t.Errorf("used up: %v", got)
	}
}
