package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"godwit/agent/agenttest"
	"godwit/agent/api"
	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/evacuate"
	"godwit/agent/guests"
	"godwit/agent/statefile"
	"godwit/agent/talk"
	"godwit/agent/written"
	"godwit/migration"
)

// remembering is served with what an earlier agent remembered of its guests.
func remembering(t *testing.T) (*Agent, *api.Client) {
	t.Helper()
	a, client := served(t)
	a.config.State = t.TempDir()
	a.guests = guests.In(a.config.StatePath("guests"))
	a.detours, a.incoming = detour.New("", config.Network{}, nil), map[string]*incoming{}
	return a, client
}

// remembers is a guest under that name that an earlier agent had.
func remembers(name string) care.Held {
	return care.Held{Description: config.Description{Name: name, Memory: 1 << 30}, Dir: "/run/guests/" + name + "-1"}
}

// TestGuestsThatMayBeHere: guests that the agent does not have under care, and that may run here all the same, are
// listed with those that it has, and who asks for one hears why nothing is done with it.
func TestGuestsThatMayBeHere(t *testing.T) {
	a, client := remembering(t)
	underCare(t, a.guests, "b-kept", guests.New(remembers("b-kept"), nil))
	unreadable(t, a, "c-unread")
	a.guests.NoteSilent(remembers("a-silent"))
	a.guests.NoteSilent(remembers("b-kept")) // it answers by now
	plan := migration.Plan{ID: "m-00000001", Guest: "d-starves", From: "rome", To: "paris", Epoch: 2}
	m := &incoming{a: a, plan: plan, work: &destinationWork{preparation: talk.Preparation{Plan: plan, Description: config.Description{Name: "d-starves"}}}}
	m.starving.Store(true)
	a.incoming[plan.ID] = m

	info, err := client.Host(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, g := range info.Guests {
		got = append(got, fmt.Sprint(g.Name, " ", g.Status, " ", g.Migration, " on ", g.Host))
	}
	if text, err := json.Marshal(info.Guests); err != nil || strings.Contains(string(text), "null") {
		t.Errorf("a program reads %s, %v", text, err)
	}
	want := []string{"a-silent " + statusSilent + "  on paris", "b-kept   on paris", "c-unread " + statusUnread + "  on paris", "d-starves " + api.StatusStarving + " m-00000001 on paris"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("listed:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if said, err := a.peerPresence(callFrom(t, "rome", "", nil)); err != nil || said.(talk.Presence).Guests != len(want) {
		t.Errorf("told to other hosts: %+v, %v", said, err)
	}
	for name, c := range map[string]struct {
		code migration.Code
		word string
	}{
		"a-silent": {migration.CodeHypervisor, "its QEMU has not answered"}, "c-unread": {migration.CodeInternal, "left as it is"},
		"d-starves": {migration.CodeBusy, "migration m-00000001 brings it to paris"}, "e-never": {migration.CodeUnknownGuest, "not under care on this host (it has: b-kept)"},
	} {
		_, err := client.Migrate(t.Context(), migration.Request{Guest: name, To: "rome"})
		agenttest.Refused(t, name, err, c.code, "guest "+name, c.word)
	}
}

// TestEvacuatedWithGuestsThatMayBeHere: a host on which guests may run that are not under care is not evacuated.
func TestEvacuatedWithGuestsThatMayBeHere(t *testing.T) {
	a, client := remembering(t)
	unreadable(t, a, "db")
	a.guests.NoteSilent(remembers("web"))
	for _, dry := range []bool{false, true} {
		got, err := evacuate.Run(t.Context(), client, evacuate.Request{Width: 1, DryRun: dry})
		if err != nil || got.OK || len(got.Guests) != 2 {
			t.Fatalf("dry run %v: %+v, %v", dry, got, err)
		}
		for i, word := range []string{"guest db: left as it is", "guest web: it may run on this host"} {
			if g := got.Guests[i]; g.Outcome != "" || !strings.Contains(g.Reason, word) {
				t.Errorf("dry run %v: %+v, want %q", dry, g, word)
			}
		}
	}
}

// TestStarvingWithoutItsJournal: a guest that misses pages, and whose migration does not go on, as its journal cannot be
// read, may be here all the same.
func TestStarvingWithoutItsJournal(t *testing.T) {
	a, p := awaiting(t)
	t.Cleanup(a.actors.Wait) // they end with the test's context
	h, _ := silently(t, a)
	feeding(t, h.Dir, 7)
	if err := statefile.Write(filepath.Join(a.config.StatePath("guests"), "web.json"), h); err != nil {
		t.Fatal(err)
	}
	journal := journalOf(t, a, p.Plan.ID, written.Destination{Side: "destination"})
	if err := os.WriteFile(journal, []byte("rubbish\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	a.resumeMigrations(t.Context(), a.readopt(t.Context()))
	if unreadOf(a, p.Plan.ID) == "" {
		t.Error("its journal was read")
	}
	under, unknown, err := a.guestsHere()
	if err != nil || len(under) > 0 || len(unknown) != 1 || unknown[0].Name != "web" || unknown[0].Status != statusSilent {
		t.Errorf("under care %v; may be here: %+v, %v", under, unknown, err)
	}
}

// TestGuestsThatNobodyKnows: where it is not known which guests there are, as on storage that fails, that is said, and
// not that there are none.
func TestGuestsThatNobodyKnows(t *testing.T) {
	a, client := remembering(t)
	if err := os.WriteFile(filepath.Join(a.config.State, "guests"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, errs := a.guests.Remembered(); len(errs) != 1 {
		t.Fatalf("%v", errs)
	}
	for name, ask := range map[string]func() error{
		"host":     func() error { _, err := client.Host(t.Context()); return err },
		"guests":   func() error { return client.Do(t.Context(), http.MethodGet, "/v1/guests", nil, nil) },
		"evacuate": func() error { _, err := evacuate.Run(t.Context(), client, evacuate.Request{Width: 1}); return err },
	} {
		agenttest.Refused(t, name, ask(), migration.CodeInternal, "which guests there are is not known", "start the agent again")
	}
	var said bytes.Buffer
	a.log = slog.New(slog.NewTextHandler(&said, nil))
	for range 3 { // other hosts ask again and again, and are told what there is to tell
		if _, err := a.peerPresence(callFrom(t, "rome", "", nil)); err != nil {
			t.Error(err)
		}
	}
	if lines := strings.Count(said.String(), "\n"); lines != 1 {
		t.Errorf("%d lines in the log: %s", lines, said.String())
	}
}
