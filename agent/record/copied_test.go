package record

import (
	"log/slog"
	"testing"
	"time"

	"godwit/migration"
	"godwit/policy"
)

// TestCopiedTo: what the last move there showed counts, of this host, over our own data path, that came to its end; of
// its last try, and until its last page was there.
func TestCopiedTo(t *testing.T) {
	s := NewStore("paris", t.TempDir(), slog.New(slog.DiscardHandler))
	add := func(id, to string, ended int64, pages int64, change func(*Report)) {
		plan := migration.Plan{ID: id, Guest: "web", From: "paris", To: to, Bandwidth: 20e6}
		rec := New("paris", plan, time.Now())
		rec.report.Phases = []PhaseSpan{{migration.Check, 0, 7}, {migration.Copy, 7, 7 + int64(3*time.Second)}}
		rec.report.WireBytes, rec.report.DiskBytes = map[string]int64{"a-b": 5000, "c-d": 600}, 100
		rec.report.DataPath = &DataPath{Pages: map[string]int64{"zero": 1e6, "raw": pages, "known": 2 * pages}, SentBytes: 1900, Repeated: 100}
		rec.End(migration.Completed, nil, time.Unix(ended, 0))
		change(&rec.report)
		s.Add(rec)
	}
	as := func(*Report) {}
	add("m-1", "rome", 10, 1000, as)
	add("m-2", "rome", 5, 2000, as) // the clock was set back
	add("m-3", "rome", 30, 3000, func(r *Report) { r.Outcome = migration.Aborted })
	add("m-4", "rome", 40, 4000, func(r *Report) { r.DataPath = nil })
	add("m-5", "rome", 50, 5000, func(r *Report) { r.From, r.To = "rome", "paris" })
	add("m-6", "oslo", 60, 6000, as)
	want := policy.Copied{Handled: 3 * 2000 * 4096, Took: 3 * time.Second, Wire: 2000, Rate: 20e6}
	if got := s.Copied("rome", 100e6, false); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	add("m-7", "rome", 70, 7000, func(r *Report) {
		r.PostCopy, r.MemoryDone = &PostCopy{}, r.Phases[1].Start+int64(8*time.Second)
	})
	if got := s.Copied("rome", 100e6, false); got.Handled != 3*7000*4096 || got.Took != 8*time.Second {
		t.Errorf("pages followed the guest: %+v", got)
	}
	add("m-8", "rome", 80, 10, func(r *Report) {
		r.PostCopy, r.MemoryDone = &PostCopy{Refills: 1}, r.Phases[1].Start+int64(20*time.Second)
	})
	if got := s.Copied("rome", 100e6, false); got.Handled != 3*7000*4096 || got.Took != 8*time.Second {
		t.Errorf("pages were sent again, as an agent had ended: %+v", got)
	}
	if got := s.Copied("rome", 100e6, true); got.Handled != 0 {
		t.Errorf("no guest stood still: %+v", got)
	}
	add("m-9", "rome", 90, 9000, func(r *Report) {
		r.Mode, r.Paused, r.Resumed = "stopcopy", int64(time.Second), int64(5*time.Second)
	})
	if got := s.Copied("rome", 100e6, true); got.Handled != 3*9000*4096 || got.Took != policy.Began(4*time.Second) {
		t.Errorf("a guest stood still: %+v", got)
	}
	add("m-10", "rome", 100, 10000, func(r *Report) { r.Mode, r.Paused = "stopcopy", int64(time.Second) })
	if got := s.Copied("rome", 100e6, true); got.Handled != 3*9000*4096 {
		t.Errorf("nobody knows how long a guest stood still: %+v", got)
	}
	if got := s.Copied("rome", 100e6, false); got.Handled != 3*7000*4096 {
		t.Errorf("one that ran counts: %+v", got)
	}
	if got := s.Copied("bonn", 100e6, false); got.Handled != 0 {
		t.Errorf("nothing went there: %+v", got)
	}
}
