package agent

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"godwit/agent/capable"
	"godwit/agent/config"
	"godwit/agent/handed"
	"godwit/agent/peer"
	"godwit/agent/talk"
	"godwit/migration"
)

// FuzzPreparation: what another host may send in prepare is refused, or its names,
// indices and lists can be used, and what is remembered of it can be read again.
func FuzzPreparation(f *testing.F) {
	whole, err := json.Marshal(goodPreparation())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(bytes.Replace(whole, []byte(`"home":"paris"`), []byte(`"home":"paris","handover":"m-1"`), 1))
	f.Add([]byte(`{"plan":{"guest":"../x","active":-1},"description":{"name":"../x"}}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var p talk.Preparation
		if peer.Decode(&http.Request{Body: io.NopCloser(bytes.NewReader(data))}, &p) != nil || p.Check() != nil {
			return
		}
		_ = p.Description.NICs[p.Plan.Active].Hardware()
		if !p.Plan.KeepsAddress() {
			_ = p.Plan.Next[len(p.Plan.Next)-1].Endpoint
		}
		if !config.IsGuestName(p.Plan.Guest) || len(p.Plan.Held) > migration.MostAddresses {
			t.Fatalf("taken: %+v", p.Plan)
		}
		migration.Bare(p.Plan.Held)
		m := &incoming{a: &Agent{config: &config.Config{Run: "/run/godwit"}}, plan: p.Plan, work: &destinationWork{preparation: p}}
		if held := m.expected(); held.Check() != nil {
			t.Fatalf("taken, and cannot be read again: %v", held.Check())
		}
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

// FuzzOffer: what another host may offer in check is refused, or this host has room for it.
func FuzzOffer(f *testing.F) {
	good := goodPreparation()
	whole, err := json.Marshal(talk.Offer{Plan: good.Plan, Description: good.Description, Facts: good.Facts})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte(`{"facts":{"memory":9223372036854775807,"version":"99999999999999999999.x"}}`))
	f.Add([]byte(`{"endpoint":255,"facts":{"disks":[{"id":"a","size":-1}]},"description":{"disks":[{"id":"a"}]}}`))
	here := capable.Host{Name: "rome", Version: "10.0.0", Accel: "tcg", Free: 1 << 30, Reserve: 128 << 20}
	f.Fuzz(func(t *testing.T, data []byte) {
		var o talk.Offer
		if json.Unmarshal(data, &o) != nil {
			return
		}
		if here.Lacks(o.Guest()) == nil && (o.Facts.Memory < 0 || o.Facts.Memory > here.Free) {
			t.Fatalf("room for %d bytes", o.Facts.Memory)
		}
		if sizes, sum, err := capable.DiskSizes(o.Description, o.Facts); err == nil && (sum < 0 || len(sizes) != len(o.Description.Disks)) {
			t.Fatalf("disks of %v, together %d", sizes, sum)
		}
		if id := handed.NextEndpoint(o.Endpoint); id == 0 || id == 255 {
			t.Fatalf("endpoint %d", id)
		}
	})
}
