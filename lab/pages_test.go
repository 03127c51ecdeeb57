package lab

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"godwit/agent/record"
	"godwit/lab/report"
)

// TestPagesOverTime: the source's progress becomes the series from which pages are drawn, once each,
// until nothing is left; of disks and of what is not known there is nothing.
func TestPagesOverTime(t *testing.T) {
	zero := time.Unix(100, 0)
	at := func(s int) int64 { return zero.Add(time.Duration(s) * time.Second).UnixNano() }
	told := func(p record.CopyProgress, s int) record.Event {
		data, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		return record.Event{Kind: "progress", At: at(s), Data: data}
	}
	r := &run{zero: zero}
	m := &move{guest: "web", report: &record.Report{MemoryDone: at(6)}}
	lanes := &record.DataPath{Waiting: 1000, InFlight: 24, Delivered: 2000, HotPages: 10}
	events := []record.Event{
		told(record.CopyProgress{What: record.CopyOfDisk, Total: 1 << 30, Remaining: 1 << 30}, 1),
		told(record.CopyProgress{What: record.CopyOfMemory, Total: 16 << 20, Remaining: 8 << 20, Round: 1, DataPath: lanes}, 2),
		told(record.CopyProgress{What: record.CopyOfMemory, Total: 16 << 20, Remaining: 15 << 20, Round: 2, DirtyRate: new(int64(1e6)), DataPath: lanes}, 3),
		told(record.CopyProgress{What: record.CopyOfRest, Total: 16 << 20, Remaining: 4 << 20, Round: 3, DataPath: lanes}, 4),
		told(record.CopyProgress{What: record.CopyOfMemory, Total: 16 << 20, Remaining: 2 << 20, Round: 4, DirtyRate: new(int64(2e6))}, 5),
	}
	for range 2 { // an agent that is asked again tells all again
		for _, e := range events {
			r.heard(t.Context(), m, e)
		}
	}
	var s report.Series
	m.pageSeries(&s, 3, func(ns int64) float64 { return float64(ns-zero.UnixNano()) / 1e9 })
	nan := math.NaN()
	want := []report.PageSeries{{
		Migration: 3, Guest: "web", T: report.Column{2, 3, 4, 5, 6},
		Left:  report.Column{12 << 20, 16 << 20, 4 << 20, 2 << 20, 0}, // of no more than there is
		Queue: report.Column{4 << 20, 4 << 20, 4 << 20, nan, nan}, Delivered: report.Column{2000 * 4096, 2000 * 4096, 2000 * 4096, nan, nan},
		Hot: report.Column{40960, 40960, 40960, nan, nan}, Dirty: report.Column{nan, 8, nan, 16, nan},
	}}
	if diff := cmp.Diff(want, s.Pages, cmpopts.EquateNaNs()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
