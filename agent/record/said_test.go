package record

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"godwit/migration"
)

// TestEventsThatLie: numbers that do not follow are refused, so that nothing loops on them;
// what events say is cut down.
func TestEventsThatLie(t *testing.T) {
	good := EventsAnswer{Events: []Event{{N: 4, Kind: "note", Text: "one\x1b[2J\nline", Host: "paris"}, {N: 5, Kind: "sudo", Phase: "x", Data: make([]byte, mostData+1)}}}
	if err := good.Sane("rome", 3); err != nil {
		t.Fatal(err)
	}
	if e := good.Events[0]; e.Host != "rome" || strings.ContainsAny(e.Text, "\n\x1b") {
		t.Errorf("%+v", e)
	}
	if e := good.Events[1]; e.Kind != "note" || e.Phase != "" || e.Data != nil {
		t.Errorf("%+v", e)
	}
	for _, after := range []int{-1, 0, 2, 4, 5} {
		if err := good.Sane("rome", after); err == nil {
			t.Errorf("taken after number %d", after)
		}
	}
}

// FuzzReported: whatever another host tells of a migration is refused, or cut down to what can be used.
func FuzzReported(f *testing.F) {
	add := func(v any) {
		data, err := json.Marshal(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	add(Report{Notes: make([]string, 9), Survival: &Survival{Connections: []Survivor{{Fate: "eaten"}, {Fate: migration.Lost}}}})
	add(Report{Survival: &Survival{Total: -1, Omitted: -5, Connections: []Survivor{{Kind: "tcp", Fate: migration.Moved}}}})
	add(EventsAnswer{Events: []Event{{N: 1, Kind: "outcome", Text: "completed"}, {N: 1}}, Born: -1})
	f.Add([]byte(`{"survival":null,"events":[{"n":-9223372036854775808}]}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		line := func(s string) {
			if strings.ContainsAny(s, "\n\x1b\x00") || len(s) > 8*1024 {
				t.Fatalf("%.100q", s)
			}
		}
		var r Report
		if json.Unmarshal(data, &r) == nil {
			r.Sane()
			if len(r.Notes) > mostNotes || len(r.Critical) > mostSteps || len(r.Next) > migration.MostAddresses {
				t.Fatalf("%+v", r)
			}
			for _, n := range r.Notes {
				line(n)
			}
			if s := r.Survival; s != nil && (s.Total != s.Moved+s.Tunnelled+s.Ended+s.Lost || s.Total != len(s.Connections) || s.Total > survivorsListed || s.Omitted < 0) {
				t.Fatalf("%+v", s)
			}
		}
		var e EventsAnswer
		if json.Unmarshal(data, &e) == nil && e.Sane("rome", 0) == nil {
			for i, one := range e.Events {
				line(one.Text)
				if one.N != i+1 || one.Host != "rome" || len(one.Data) > mostData {
					t.Fatalf("%+v", one)
				}
			}
		}
	})
}

// TestNoteOnceAtOnce: what several say at the same time is noted once.
func TestNoteOnceAtOnce(t *testing.T) {
	for range 50 {
		r := New("paris", migration.Plan{ID: "m-00000001"}, time.Now())
		begin, said := make(chan struct{}), sync.WaitGroup{}
		for range 8 {
			said.Go(func() {
				<-begin
				r.NoteOnce("others move there, too")
			})
		}
		close(begin)
		said.Wait()
		if notes := r.Snapshot().Notes; len(notes) != 1 || len(r.events) != 1 {
			t.Fatalf("%q, %d events", notes, len(r.events))
		}
	}
}
