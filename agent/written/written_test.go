package written

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/journal"
	"godwit/agent/talk"
	"godwit/migration"
)

// TestSourceCheck: a journal of another migration is not gone on with, nor one of which another version counted the
// steps otherwise.
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

// TestDestinationCheck: a destination's journal is gone on with where it is of this migration, and what the source
// asked for can be meant: a directory that it names may be removed.
func TestDestinationCheck(t *testing.T) {
	good := func() Destination {
		held := migration.Address{Prefix: netip.MustParsePrefix("10.1.1.20/24"), Home: "paris"}
		next := migration.Address{Prefix: netip.MustParsePrefix("10.2.1.20/24"), Home: "rome"}
		plan := migration.Plan{ID: "m-00000001", Epoch: 3, Guest: "web", From: "paris", To: "rome", Network: "mptcp", Held: []migration.Address{held}, Next: []migration.Address{next}}
		d := config.Description{Name: "web", Memory: 256 << 20, NICs: []config.NIC{{MAC: "52:54:00:00:01:0a"}, {MAC: "52:54:00:00:01:0b"}}}
		return Destination{
			Offer: talk.Offer{Plan: plan, Description: d}, Preparation: talk.Preparation{Plan: plan, Description: d},
			State: migration.Destination{Landing: migration.Waiting, Epoch: 3}, Held: care.Held{Dir: "/run/godwit/guests/web-3"},
		}
	}
	for name, c := range map[string]struct {
		change func(*Destination)
		word   string
	}{
		"as it was written":         {func(*Destination) {}, ""},
		"before its directory was":  {func(j *Destination) { j.Held.Dir = "" }, ""},
		"of another migration":      {func(j *Destination) { j.Offer.Plan.ID = "m-00000002" }, `it is of migration "m-00000002"`},
		"a state that there is not": {func(j *Destination) { j.State.Landing = "floating" }, "journal m-00000001: "},
		"a path as its guest":       {func(j *Destination) { j.Preparation.Plan.Guest = "../x" }, "description"},
		"a NIC that there is not":   {func(j *Destination) { j.Preparation.Plan.Active = 2 }, "active NIC 2 of 2"},
		"a directory elsewhere":     {func(j *Destination) { j.Held.Dir = "/etc" }, `directory "/etc" is not of a guest`},
		"a way around":              {func(j *Destination) { j.Held.Dir = "/run/godwit/guests/../guests/web-3" }, "is not of a guest"},
	} {
		j := good()
		c.change(&j)
		if err := j.Check("m-00000001"); (err == nil) != (c.word == "") || err != nil && (!strings.Contains(err.Error(), c.word) || strings.Contains(err.Error(), "\n")) {
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
