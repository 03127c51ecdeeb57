package record

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"godwit/agent/statefile"
	"godwit/migration"
)

// TestRecordsAreBounded: an agent that lives long does not grow with every migration; those
// under way keep all that they have.
func TestRecordsAreBounded(t *testing.T) {
	s := NewStore("paris", t.TempDir(), slog.New(slog.DiscardHandler))
	begin := func(n int) *Record {
		r := New("paris", migration.Plan{ID: fmt.Sprintf("m-%08x", n)}, time.Now())
		r.Note("a word")
		s.Add(r)
		return r
	}
	longest := begin(0)
	for n := 1; n <= recordsKept+50; n++ {
		begin(n).End(migration.Completed, nil, time.Unix(int64(n), 0))
	}
	last := begin(recordsKept + 51)
	stories := 0
	for _, r := range s.by {
		if len(r.events) > 0 && r.EndedAt() > 0 {
			stories++
		}
	}
	if len(s.by) > recordsKept+2 || stories > storiesKept {
		t.Errorf("%d records, %d stories of migrations that ended", len(s.by), stories)
	}
	if s.by["m-00000000"] != longest || len(longest.events) == 0 || len(last.events) == 0 {
		t.Error("one under way was forgotten")
	}
	if s.by["m-00000001"] != nil || s.by[fmt.Sprintf("m-%08x", recordsKept+50)] == nil {
		t.Error("not the oldest were forgotten")
	}
}

// TestRecordsOfCrowdsAreBounded: the reports of guests with thousands of connections are not all kept in memory; the
// last are, and the history has the others.
func TestRecordsOfCrowdsAreBounded(t *testing.T) {
	s := NewStore("paris", t.TempDir(), slog.New(slog.DiscardHandler))
	crowd := make([]Survivor, 10_000)
	const many = 2 * connectionsKept / 10_000
	for n := range many {
		r := New("paris", migration.Plan{ID: fmt.Sprintf("m-%08x", n)}, time.Now())
		if err := s.Write(r.plan.ID+".json", func() Report { return r.report }); err != nil { // a test need not write all that
			t.Fatal(err)
		}
		r.Edit(func(rep *Report) { rep.Survival = &Survival{Connections: crowd, Total: len(crowd)} })
		r.End(migration.Completed, nil, time.Now())
		s.Add(r)
	}
	if n := len(s.by); n > max(storiesKept, connectionsKept/len(crowd)) || s.by[fmt.Sprintf("m-%08x", many-1)] == nil {
		t.Errorf("%d records in memory", n)
	}
	if rep, known := s.Report("m-00000000"); !known || rep.ID != "m-00000000" {
		t.Errorf("the first is %q, known %v", rep.ID, known)
	}
}

// TestRecordsAndTheClock: what has just ended is told to who follows it also where the clock was set back since.
func TestRecordsAndTheClock(t *testing.T) {
	s := NewStore("paris", t.TempDir(), slog.New(slog.DiscardHandler))
	var last *Record
	for n := range 2 * storiesKept {
		last = New("paris", migration.Plan{ID: fmt.Sprintf("m-%08x", n)}, time.Now())
		s.Add(last)
		last.End(migration.Completed, nil, time.Unix(int64(1000-n), 0))
	}
	s.Add(New("paris", migration.Plan{ID: "m-ffffffff"}, time.Now()))
	if events := last.Watch(t.Context(), 0).Events; len(events) == 0 {
		t.Error("the story of what ended last is forgotten")
	}
	if events := s.by["m-00000000"].Watch(t.Context(), 0).Events; len(events) != 0 {
		t.Errorf("that of what ended first is kept: %+v", events)
	}
}

// TestReportsOfEarlierAgents: what ended under earlier agents is listed with what this one knows, the
// newest first, once each; what cannot be read is left out, and the oldest of too many.
func TestReportsOfEarlierAgents(t *testing.T) {
	s := NewStore("paris", t.TempDir(), slog.New(slog.DiscardHandler))
	keep := func(name, id string, at int64) {
		if err := statefile.Write(filepath.Join(s.dir, name+".json"), Report{ID: id, Guest: "web", Requested: at * 1e9, Ended: at*1e9 + 1, Outcome: migration.Completed}); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(filepath.Join(s.dir, name+".json"), time.Time{}, time.Unix(at, 0)); err != nil {
			t.Fatal(err)
		}
	}
	listed := func() (ids []string) {
		for _, r := range s.Reports() {
			ids = append(ids, r.ID)
		}
		return ids
	}
	if got := listed(); len(got) > 0 {
		t.Errorf("of no history: %v", got)
	}
	keep("m-00000001", "m-00000001", 1)
	keep("m-00000002-destination", "m-00000002", 2)
	keep("m-00000003", "m-00000003", 3)
	if err := os.WriteFile(filepath.Join(s.dir, "m-00000004.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Add(New("paris", migration.Plan{ID: "m-00000003"}, time.Unix(3, 0)))
	s.Add(New("paris", migration.Plan{ID: "m-00000005"}, time.Unix(5, 0)))
	if got, want := listed(), []string{"m-00000005", "m-00000003", "m-00000002", "m-00000001"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for n := range recordsKept {
		id := fmt.Sprintf("m-%08x", 0x100+n)
		keep(id, id, int64(10+n))
	}
	if got := listed(); len(got) != recordsKept || got[0] != fmt.Sprintf("m-%08x", 0x100+recordsKept-1) || slices.Contains(got, "m-00000001") || !slices.Contains(got, "m-00000005") {
		t.Errorf("%d reports, %s to %s", len(got), got[0], got[len(got)-1])
	}
}

// TestTwoChangesOfAReport: of what two change at the same time in the report of a migration that has ended, such as its
// connections and a note of its name server, nothing is lost.
func TestTwoChangesOfAReport(t *testing.T) {
	s := NewStore("paris", t.TempDir(), slog.New(slog.DiscardHandler))
	const id = "m-00000001"
	if err := s.Write(id+".json", func() Report { return Report{ID: id, Ended: 1, Outcome: migration.Completed} }); err != nil {
		t.Fatal(err)
	}
	second := make(chan struct{})
	s.Amend(id, func(rep *Report) {
		go func() {
			defer close(second)
			s.Amend(id, func(rep *Report) { rep.TunnelDown = 7 })
		}()
		select { // it is through, or waits
		case <-second:
		case <-time.After(100 * time.Millisecond):
		}
		rep.Notes = append(rep.Notes, "a word")
	})
	<-second
	if rep, _, err := s.Ended(id + ".json"); err != nil || len(rep.Notes) != 1 || rep.TunnelDown != 7 {
		t.Errorf("notes %v, tunnel down at %d, %v", rep.Notes, rep.TunnelDown, err)
	}
}

// TestAmendedAsItIsWritten: what is amended of a migration while its end is written down is in the history once.
func TestAmendedAsItIsWritten(t *testing.T) {
	s := NewStore("paris", t.TempDir(), slog.New(slog.DiscardHandler))
	rec := New("paris", migration.Plan{ID: "m-00000001", Guest: "web"}, time.Now())
	s.Add(rec)
	rec.End(migration.Completed, nil, time.Now())
	var amended sync.WaitGroup
	err := s.Write("m-00000001.json", func() Report {
		amended.Go(func() { s.Amend("m-00000001", func(r *Report) { r.Notes = append(r.Notes, "told late") }) })
		for len(rec.Snapshot().Notes) == 0 {
			time.Sleep(time.Millisecond)
		}
		return rec.Snapshot()
	})
	amended.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if rep, known, err := s.Ended("m-00000001.json"); !known || err != nil || len(rep.Notes) != 1 {
		t.Errorf("%v, %q, %v", known, rep.Notes, err)
	}
}
