package agent

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/agent/record"
	"godwit/agent/sample"
	"godwit/migration"
)

// moving is another migration to rome of which so much is foreseen, and so much was sent.
func moving(m *outgoing, id, guest string, predicted, sent int64) *outgoing {
	plan := migration.Plan{ID: id, Guest: guest, From: "paris", To: "rome"}
	other := &outgoing{plan: plan, rec: record.New("paris", plan, time.Now())}
	other.rec.Edit(func(r *record.Report) {
		r.Predicted, r.WireBytes = &record.Prediction{WireBytes: predicted}, map[string]int64{"public-public": sent}
	})
	m.a.records.Add(other.rec)
	return other
}

// TestPlanTellsNobody: what is only asked for (plan, --dry-run) moves nobody, and the reports of others tell of
// guests that do.
func TestPlanTellsNobody(t *testing.T) {
	for name, real := range map[string]bool{"a plan": false, "a migration": true} {
		m, n := budgeted(t, "precopy", 300*time.Millisecond, 20*time.Millisecond)
		m.plan.Transfer = "qemu-tcp"
		if real {
			m.a.records.Add(m.rec)
		}
		other := moving(m, "m-00000002", "db", 1<<30, 0)
		m.predict(t.Context(), n, &sample.Basis{Bytes: 1 << 28, Content: 1 << 28, Ratio: 1, Again: 1})
		if notes := other.rec.Snapshot().Notes; (len(notes) > 0) != real {
			t.Errorf("%s: the other one is told %q", name, notes)
		}
		if beside := m.rec.Snapshot().Predicted.Beside; len(beside) != 1 {
			t.Errorf("%s: it takes account of %q", name, beside)
		}
	}
}

// TestSharedOnce: what the last try has shown that it gets of the paths, beside others, is not shared with these once
// more.
func TestSharedOnce(t *testing.T) {
	const bytes = 200 << 20
	for name, c := range map[string]struct {
		carry int64
		times float64 // as long as alone at all that the paths carry
	}{"first try": {0, 2}, "a second, with half of the paths": {50e6, 2}, "a second, with a quarter of them": {25e6, 4}} {
		m, n := budgeted(t, "precopy", 300*time.Millisecond, 20*time.Millisecond)
		m.plan.Transfer, m.carry = "qemu-tcp", c.carry
		moving(m, "m-00000002", "db", 300<<20, 0)
		m.predict(t.Context(), n, &sample.Basis{Bytes: bytes, Content: bytes, Ratio: 1, Again: 1})
		const copied = bytes * 1.04 / (0.95 * 100e6 / 8)
		if got := m.rec.Snapshot().Predicted.MigrationS / copied; got < c.times || got > c.times+0.1 {
			t.Errorf("%s: %.2f times as long, want %.2f", name, got, c.times)
		}
	}
}

// TestManyAtOnceAreToldOnce: of ten guests that move there at once each is told once that others do since its
// forecast, not once of each.
func TestManyAtOnceAreToldOnce(t *testing.T) {
	first, n := budgeted(t, "precopy", 300*time.Millisecond, 20*time.Millisecond)
	var all []*outgoing
	for i := range 10 {
		m, _ := budgeted(t, "precopy", 300*time.Millisecond, 20*time.Millisecond)
		m.a, m.plan.Transfer = first.a, "qemu-tcp"
		m.plan.ID, m.plan.Guest = fmt.Sprintf("m-%08x", i+1), fmt.Sprintf("g%d", i)
		m.rec = record.New("paris", m.plan, time.Now())
		m.a.records.Add(m.rec)
		m.predict(t.Context(), n, &sample.Basis{Bytes: 1 << 28, Content: 1 << 28, Ratio: 1, Again: 1})
		all = append(all, m)
	}
	for i, m := range all {
		notes := strings.Join(m.rec.Snapshot().Notes, "; ")
		if got, want := strings.Count(notes, "since this was foreseen"), min(1, len(all)-1-i); got != want {
			t.Errorf("%s is told %d times, want %d: %s", m.plan.Guest, got, want, notes)
		}
	}
}

// TestBesideInOrder: those that a forecast takes account of are told in order; nothing of those that have ended is
// read, of which there may be many.
func TestBesideInOrder(t *testing.T) {
	m, _ := budgeted(t, "precopy", 300*time.Millisecond, 20*time.Millisecond)
	var want []string
	for i := range 9 {
		id := fmt.Sprintf("m-%08x", i+2)
		want = append(want, id)
		moving(m, id, fmt.Sprintf("g%d", 9-i), 1<<30, 0)
	}
	before := testing.AllocsPerRun(5, func() { m.beside() })
	for i := range 90 {
		moving(m, fmt.Sprintf("m-%08x", i+20), "gone", 1<<30, 1<<30).rec.End(migration.Completed, nil, time.Now())
	}
	if after := testing.AllocsPerRun(5, func() { m.beside() }); after > 2*before {
		t.Errorf("%.0f allocations, %.0f beside those that have ended", before, after)
	}
	ids, names, all := m.beside()
	if !slices.Equal(ids, want) || !slices.IsSorted(names) || len(all) != len(want) {
		t.Errorf("%q, %q, %d of them; want %q", ids, names, len(all), want)
	}
}

// TestBesideWhoseMemoryFollows: a guest that runs there already shares the paths for as long as its memory follows it,
// with what is foreseen to come yet; one whose memory is there does not.
func TestBesideWhoseMemoryFollows(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(r *record.Report)
		sent int64
		want []int64 // what others have yet to send
	}{
		"it does not run yet":    {func(*record.Report) {}, 40 << 20, []int64{60 << 20}},
		"it goes on beyond that": {func(*record.Report) {}, 101 << 20, []int64{-1}},
		"it has come, and waits": {func(r *record.Report) { r.MemoryDone = 1 }, 101 << 20, []int64{0}},
		"memory follows":         {func(r *record.Report) { r.Resumed, r.PostCopy = 1, &record.PostCopy{} }, 40 << 20, []int64{60 << 20}},
		"more than was foreseen": {func(r *record.Report) { r.Resumed, r.PostCopy = 1, &record.PostCopy{} }, 101 << 20, []int64{0}},
		"all of it has come":     {func(r *record.Report) { r.Resumed, r.MemoryDone, r.PostCopy = 1, 2, &record.PostCopy{} }, 40 << 20, nil},
		"nothing was to follow":  {func(r *record.Report) { r.Resumed = 1 }, 40 << 20, nil},
	} {
		m, _ := budgeted(t, "precopy", 300*time.Millisecond, 20*time.Millisecond)
		moving(m, "m-00000002", "db", 100<<20, c.sent).rec.Edit(c.edit)
		_, _, all := m.beside()
		var got []int64
		for _, other := range all {
			got = append(got, other.Left)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
