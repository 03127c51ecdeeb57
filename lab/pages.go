package lab

import (
	"math"

	"godwit/agent/record"
	"godwit/lab/report"
)

// sawPages keeps what a progress event of the source says of memory on its way; mu is held.
// An agent that tells its events again, or anew, adds nothing that was there.
func (m *move) sawPages(at int64, p record.CopyProgress) {
	if p.What == record.CopyOfDisk || len(m.pages) > 0 && at <= m.pages[len(m.pages)-1].at {
		return
	}
	unknown := math.NaN()
	row := report.PageSample{Left: float64(p.Left()), Queue: unknown, Delivered: unknown, Hot: unknown, Dirty: unknown}
	if p.DirtyRate != nil {
		row.Dirty = float64(*p.DirtyRate) * 8 / 1e6
	}
	if d := p.DataPath; d != nil {
		row.Queue, row.Delivered, row.Hot = float64(d.Queued()), bytesOf(d.Delivered), bytesOf(d.HotPages)
	}
	m.pages = append(m.pages, pageLook{at, row})
}

func bytesOf(pages uint64) float64 { return float64(pages) * 4096 }

// pageLook is what memory was like at a time, unix ns.
type pageLook struct {
	at int64
	report.PageSample
}

// pageSeries adds what the source of the n-th migration told of its memory, and that nothing was left
// when the last page was there.
func (m *move) pageSeries(s *report.Series, n int, rel func(int64) float64) {
	var rows []report.PageSample
	for _, look := range m.pages {
		look.T = rel(look.at)
		rows = append(rows, look.PageSample)
	}
	if len(rows) > 0 && m.report != nil && m.report.MemoryDone > m.pages[len(m.pages)-1].at {
		last := rows[len(rows)-1]
		last.T, last.Left, last.Dirty = rel(m.report.MemoryDone), 0, math.NaN()
		if !math.IsNaN(last.Queue) {
			last.Queue = 0
		}
		rows = append(rows, last)
	}
	s.AddPages(n, m.guest, rows)
}
