package agent

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"godwit/agent/peer"
	"godwit/migration"
)

// FuzzPreparation: what another host may send in prepare is refused, or its names,
// indices and lists can be used.
func FuzzPreparation(f *testing.F) {
	whole, err := json.Marshal(goodPreparation())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte(`{"plan":{"guest":"../x","active":-1},"description":{"name":"../x"}}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var p Preparation
		if peer.Decode(&http.Request{Body: io.NopCloser(bytes.NewReader(data))}, &p) != nil || p.check() != nil {
			return
		}
		_ = p.Description.NICs[p.Plan.Active].hardware()
		if !p.Plan.KeepsAddress() {
			_ = p.Plan.Next[len(p.Plan.Next)-1].Endpoint
		}
		if !guestName.MatchString(p.Plan.Guest) || len(p.Plan.Held) > mostAddresses {
			t.Fatalf("taken: %+v", p.Plan)
		}
		bare(p.Plan.Held)
	})
}

// FuzzJournaledStates: no state that can be read makes a machine panic.
func FuzzJournaledStates(f *testing.F) {
	f.Add([]byte(`{"course":"forward","at":8,"epoch":3}`), []byte(`{"landing":"waiting","released":true}`), uint8(1))
	f.Add([]byte(`{"course":"undoing","at":7,"outcome":"aborted","undo":["resume"]}`), []byte(`{"landing":"adopting","vanished":true}`), uint8(4))
	kinds := []migration.InputKind{
		migration.Start, migration.Done, migration.Fault, migration.Abort, migration.NoAnswer, migration.Declined, migration.Restarted,
		migration.TakeBack, migration.Released, migration.LoadedAll, migration.RunsAlready, migration.Vanish, migration.AskRefusal, migration.Disown,
	}
	f.Fuzz(func(t *testing.T, source, destination []byte, n uint8) {
		in := migration.Input{Kind: kinds[int(n)%len(kinds)], Problem: problemShutdown}
		var s migration.Source
		if json.Unmarshal(source, &s) == nil && s.Valid() == nil {
			in.Effect = s.Doing()
			s.Phase()
			if next, _, err := s.Step(in); err == nil && next.Valid() != nil {
				t.Fatalf("%+v, %+v: %v", s, in, next.Valid())
			}
		}
		var d migration.Destination
		if json.Unmarshal(destination, &d) == nil && d.Valid() == nil {
			if next, _, err := d.Step(migration.Input{Kind: in.Kind, Problem: problemShutdown}); err == nil && next.Valid() != nil {
				t.Fatalf("%+v, %+v: %v", d, in, next.Valid())
			}
		}
	})
}
