package written

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"godwit/agent/journal"
	"godwit/migration"
)

// TestSourceCheck: a journal of another migration is not gone on with, nor one of which another version counted the steps otherwise.
func TestSourceCheck(t *testing.T) {
	state := migration.Source{Course: migration.Forward, Epoch: 2, Tries: 1, At: 2}
	plan := migration.Plan{ID: "m-00000001"}
	for name, c := range map[string]struct {
		j    Source
		word string
	}{
		"as it was written":         {Source{Plan: plan, State: state, Doing: state.Reached()}, ""},
		"by an agent of before":     {Source{Plan: plan, State: state}, ""},
		"of another migration":      {Source{Plan: migration.Plan{ID: "m-00000002"}, State: state}, `it is of migration "m-00000002"`},
		"counted otherwise":         {Source{Plan: plan, State: state, Doing: "dance"}, `was "dance" where it was written`},
		"a state that there is not": {Source{Plan: plan, State: migration.Source{Course: "sideways"}}, "journal m-00000001: "},
	} {
		if err := c.j.Check("m-00000001"); (err == nil) != (c.word == "") || err != nil && (!strings.Contains(err.Error(), c.word) || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%s: %v, want %q", name, err, c.word)
		}
	}
}

// TestHead: whose a journal is, is known of either side, and by its beginning, too.
func TestHead(t *testing.T) {
	dir := t.TempDir()
	for id, record := range map[string]any{
		"m-00000001": Source{Side: "source", Plan: migration.Plan{Guest: "web"}, State: migration.Source{Course: migration.Ended}},
		"m-00000002": Destination{Side: "destination"},
		"m-00000003": json.RawMessage(`{"offer": {"plan": {"guest": "db"}}}`),
	} {
		log, err := journal.Create(dir, id)
		if err == nil {
			err = log.Append(record, false)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, id := range []string{"m-00000001", "m-00000002", "m-00000003", "m-00000004"} {
		h := HeadOf(dir, id)
		got = append(got, h.Plan.Guest+"/"+h.Offer.Plan.Guest+"/"+string(h.State.Course))
	}
	if want := []string{"web//" + string(migration.Ended), "//", "/db/", "//"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
