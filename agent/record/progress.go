package record

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"godwit/transfer/pages"
)

// What a CopyProgress is of.
const (
	CopyOfMemory = "memory"
	CopyOfRest   = "memory that follows" // in post-copy
	CopyOfDisk   = "disk"
)

// CopyProgress is what watchers see of a copy. Bytes, bytes per second.
type CopyProgress struct {
	What      string           `json:"what"` // CopyOfMemory, CopyOfRest or CopyOfDisk
	Total     int64            `json:"total"`
	Remaining int64            `json:"remaining"`
	Sent      int64            `json:"sent"`
	Rate      int64            `json:"rate"`
	DirtyRate *int64           `json:"dirty_rate"`          // that the guest writes; nil: not known
	Throttled int              `json:"throttled,omitempty"` // percent of the time for which the guest's processors stand still
	Round     int64            `json:"round"`
	LeftS     float64          `json:"left_s"` // seconds until done, as foreseen
	Wire      map[string]int64 `json:"wire"`   // by path, so far
	DataPath  *DataPath        `json:"data_path,omitempty"`
}

// Left is what the destination lacks: what QEMU has not sent, and with our own data path also
// what waits here or is on its way. A page that was written while it waited counts twice.
func (p CopyProgress) Left() int64 {
	if p.What != CopyOfMemory || p.DataPath == nil {
		return p.Remaining
	}
	return min(p.Remaining+p.DataPath.Queued(), p.Total)
}

// Queued is what was read from QEMU and is not there yet, bytes of guest memory.
func (d *DataPath) Queued() int64 {
	return int64(d.Waiting+d.InFlight) * pages.Size //nolint:gosec // less than memory
}

// Line says it to a person: how far it is, Details, and what time is left.
func (p CopyProgress) Line() string {
	if p.Total <= 0 {
		return p.What + ": not yet"
	}
	share := float64(p.Total-p.Left()) / float64(p.Total)
	parts := []string{fmt.Sprintf("%s %.0f %% of %s", p.What, 100*min(max(share, 0), 1), megabytes(p.Total))}
	if p.Round > 0 {
		parts = append(parts, fmt.Sprintf("round %d", p.Round))
	}
	if p.Rate > 0 {
		parts = append(parts, megabits(p.Rate))
	}
	if details := p.Details(); details != "" {
		parts = append(parts, details)
	}
	if p.LeftS > 0 {
		parts = append(parts, fmt.Sprintf("about %.1f s left", p.LeftS))
	}
	return strings.Join(parts, ", ")
}

// Details are what the guest writes, and what our own data path does: its queue, each path's
// rate, and the codings that most pages had. Empty where nothing of it is known.
func (p CopyProgress) Details() string {
	var parts []string
	if p.DirtyRate != nil {
		parts = append(parts, "the guest writes "+megabits(*p.DirtyRate))
	}
	if p.Throttled > 0 {
		parts = append(parts, fmt.Sprintf("it stands still for %d %% of the time", p.Throttled))
	}
	if p.DataPath != nil {
		parts = append(parts, p.DataPath.details()...)
	}
	return strings.Join(parts, ", ")
}

func (d *DataPath) details() []string {
	parts := []string{"queue " + megabytes(d.Queue)}
	if d.HotPages > 0 {
		parts = append(parts, fmt.Sprintf("%d hot pages", d.HotPages))
	}
	for _, path := range d.Paths {
		switch {
		case path.Lanes > 0:
			parts = append(parts, path.Path+" "+megabits(path.now()))
		case path.Died > 0 && d.Queue > 0: // else it is not open yet, or was closed at the end
			parts = append(parts, path.Path+" broken")
		}
	}
	if d.Opaque != "" {
		return append(parts, "QEMU's stream is passed on as it is")
	}
	return append(parts, d.mostCodings()...)
}

// codingsTold is how many codings a line has.
const codingsTold = 3

// mostCodings are those that most pages had, with their share of all pages.
func (d *DataPath) mostCodings() []string {
	type share struct {
		name  string
		pages int64
	}
	var all []share
	var sum int64
	for name, n := range d.Pages {
		all, sum = append(all, share{name, n}), sum+n
	}
	slices.SortFunc(all, func(a, b share) int { return cmp.Or(cmp.Compare(b.pages, a.pages), cmp.Compare(a.name, b.name)) })
	var parts []string
	for _, s := range all[:min(len(all), codingsTold)] {
		if percent := 100 * float64(s.pages) / float64(sum); percent >= 0.5 {
			parts = append(parts, fmt.Sprintf("%.0f %% %s", percent, s.name))
		}
	}
	return parts
}

// megabytes and megabits (of bytes per second) have two digits where there are no more.
func megabytes(n int64) string { return twoDigits(float64(n)/1e6) + " MB" }

func megabits(rate int64) string { return twoDigits(float64(rate)*8/1e6) + " Mbit/s" }

func twoDigits(v float64) string {
	if v < 9.95 {
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// DataPath is what is known of our own data path. Bytes are coded ones, but where they
// say otherwise.
type DataPath struct {
	Queue        int64            `json:"queue"`                   // that wait or are not acknowledged
	LargestQueue int64            `json:"largest_queue,omitempty"` // that it ever was, as looks at it saw
	LargestSpill int64            `json:"largest_spill,omitempty"` // of memory that the queue's file held
	Waiting      uint64           `json:"waiting_pages"`           // read from QEMU, to be sent
	InFlight     uint64           `json:"flying_pages"`            // sent, not acknowledged
	Delivered    uint64           `json:"delivered_pages"`         // the destination has some version of them
	HotPages     uint64           `json:"hot_pages"`               // written again twice or more
	Rounds       int              `json:"rounds"`                  // passes over memory that were read
	ReadBytes    int64            `json:"read_bytes"`              // of QEMU's stream
	SentBytes    int64            `json:"sent_bytes"`              // of frames that are there
	Repeated     int64            `json:"repeated"`                // sent again, as a lane had died or was late
	Skipped      uint64           `json:"skipped"`                 // versions of pages that a newer one replaced unsent
	Missed       uint64           `json:"missed"`                  // pages that had to be sent whole after all
	TailBytes    int64            `json:"tail_bytes"`
	Offered      int              `json:"offered,omitempty"` // pages that the destination has from elsewhere
	Pages        map[string]int64 `json:"pages"`             // by coding
	Bytes        map[string]int64 `json:"bytes"`             // by coding
	Paths        []PathRate       `json:"paths"`
	Levels       map[string]int   `json:"levels"`           // of compression: frames
	Opaque       string           `json:"opaque,omitempty"` // why QEMU's stream is passed on as it is
}

// PathRate is one path of it.
type PathRate struct {
	Path     string  `json:"path"`
	Lanes    int     `json:"lanes"`             // that work
	Bytes    int64   `json:"bytes"`             // of frames that arrived first over it
	Rate     int64   `json:"rate"`              // bytes per second that it can carry
	Carries  *int64  `json:"carries,omitempty"` // that it does now, also where a limit lets it carry less; null: an agent of before that tells
	RTTMS    float64 `json:"rtt_ms"`
	Died     int     `json:"died"`               // lanes that did
	Unopened bool    `json:"unopened,omitempty"` // none has worked, but spare ones
	Last     string  `json:"last,omitempty"`
}

// now is what it carries, as far as is told.
func (p PathRate) now() int64 {
	if p.Carries == nil {
		return p.Rate
	}
	return *p.Carries
}

var CodingNames = [pages.Codings]string{
	pages.None: "none", pages.Zero: "zero", pages.Same: "same", pages.Reference: "reference", pages.Known: "known",
	pages.Delta: "delta", pages.Batch: "batch", pages.Raw: "raw",
}
