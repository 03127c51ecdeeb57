package report

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"godwit/internal/oneline"
	"godwit/migration"
)

// DataPath is what the page reads of a migration's data_path. Bytes are coded ones, but where
// they say otherwise.
type DataPath struct {
	LargestQueue int64            `json:"largest_queue"` // 0: not known
	LargestSpill int64            `json:"largest_spill"` // of guest memory
	HotPages     int64            `json:"hot_pages"`
	Rounds       int64            `json:"rounds"`
	Repeated     int64            `json:"repeated"`
	Skipped      int64            `json:"skipped"` // versions of pages
	Missed       int64            `json:"missed"`  // pages
	Pages        map[string]int64 `json:"pages"`   // by coding
	Bytes        map[string]int64 `json:"bytes"`   // by coding
	Paths        []PathShare      `json:"paths"`
	Opaque       string           `json:"opaque"` // why QEMU's stream was passed on as it is
}

// PathShare is what one path carried.
type PathShare struct {
	Path     string `json:"path"`
	Bytes    int64  `json:"bytes"`
	Died     int64  `json:"died"`
	Unopened bool   `json:"unopened"`
	Last     string `json:"last"`
}

// dataPath reads the migration's data_path; nil where there is none.
func (m *Migration) dataPath() *DataPath {
	var d DataPath
	if len(m.DataPath) == 0 || json.Unmarshal(m.DataPath, &d) != nil {
		return nil
	}
	return &d
}

// pageBytes is the size of a page of guest memory.
const pageBytes = 4096

// coding is one way in which a page may travel, and the page's variable for its colour.
type coding struct{ name, means, color string }

// codings are those of docs/datapath.md, the cheapest first.
var codings = []coding{
	{"zero", "nothing but zeros", "c0"},
	{"same", "unchanged since it was sent: not sent at all", "c1"},
	{"reference", "the content of another page that is there", "c2"},
	{"known", "the content of a page that is there from elsewhere: an earlier visit's memory, an image, another guest that comes from the same host", "c3"},
	{"delta", "what changed since the page was sent", "c4"},
	{"batch", "the other pages of a frame, up to 64, compressed together", "c5"},
	{"raw", "as it is: to compress it does not pay", "c6"},
}

// codingsOf are those that occur in d: what is not in the list comes last, in grey.
func codingsOf(d *DataPath) []coding {
	list := slices.Clone(codings)
	for _, name := range slices.Sorted(maps.Keys(d.Pages)) {
		if !slices.ContainsFunc(codings, func(c coding) bool { return c.name == name }) {
			list = append(list, coding{name, "", "mute"})
		}
	}
	return slices.DeleteFunc(list, func(c coding) bool { return d.Pages[c.name] == 0 && d.Bytes[c.name] == 0 })
}

// dataPathOf is what the page shows of one migration's data path.
type dataPathOf struct {
	Title, About string
	Open         bool
	Opaque, Post string
	Bars         []bar
	Facts        []card
	Tables       []table
}

// bar is a stacked horizontal bar; bars of one migration share a scale.
type bar struct {
	Label, Value string
	Parts        []barPart
}

// barPart is a piece of a bar. Width is in percent of the scale.
type barPart struct{ Color, Width, Text, Hint string }

// openDataPaths is up to how many sections of the page are open at first.
const openDataPaths = 2

// dataPaths are the sections of all migrations whose memory took our own data path.
func dataPaths(r *Report) []dataPathOf {
	var list []dataPathOf
	for i := range r.Migrations {
		m := &r.Migrations[i]
		d := m.dataPath()
		if d == nil && m.PostCopy == nil {
			continue
		}
		v := dataPathOf{Title: "Migration " + strconv.Itoa(i+1), About: m.Guest + ", " + m.From + " → " + m.To}
		if m.PostCopy != nil {
			v.Post = "Post-copy: " + m.PostCopy.Line() + ". Why: " + m.PostCopy.Why
		}
		if d != nil {
			memory, coded := d.sums()
			v.About += fmt.Sprintf(": %s of memory as %s", bytesText(memory), bytesText(coded))
			v.Opaque, v.Bars, v.Facts = d.Opaque, d.bars(), append(r.dirtyRate(i+1), d.facts()...)
			v.Tables = slices.DeleteFunc([]table{d.codingTable(), d.pathTable(r, m)}, table.empty)
		}
		list = append(list, v)
	}
	for i := range list {
		list[i].Open = len(list) <= openDataPaths
	}
	return list
}

// sums are what was sent in all, in bytes of guest memory and as it was coded.
func (d *DataPath) sums() (memory, coded float64) {
	for _, n := range d.Pages {
		memory += float64(n) * pageBytes
	}
	for _, n := range d.Bytes {
		coded += float64(n)
	}
	return memory, coded
}

// bars set what was sent against what that took, by coding.
func (d *DataPath) bars() []bar {
	memory, coded := d.sums()
	whole := max(memory, coded)
	if whole <= 0 {
		return nil
	}
	of := bar{Label: "guest memory", Value: bytesText(memory)}
	as := bar{Label: "as coded", Value: fmt.Sprintf("%s, %s %%", bytesText(coded), number(coded/memory*100))}
	if memory <= 0 {
		as.Value = bytesText(coded)
	}
	for _, c := range codingsOf(d) {
		of.add(c, float64(d.Pages[c.name])*pageBytes, whole)
		as.add(c, float64(d.Bytes[c.name]), whole)
	}
	return []bar{of, as}
}

// add appends a piece, with its name where there is room.
func (b *bar) add(c coding, bytes, whole float64) {
	share := bytes / whole * 100
	if share <= 0 {
		return
	}
	p := barPart{Color: c.color, Width: strconv.FormatFloat(share, 'f', 3, 64), Hint: c.name + ": " + bytesText(bytes)}
	if 8*share > textWidth(c.name) { // a bar has about 800 px
		p.Text = c.name
	}
	b.Parts = append(b.Parts, p)
}

// codingTable is the bars' legend, with the numbers.
func (d *DataPath) codingTable() table {
	t := table{Title: "Pages by coding", Head: []string{"coding", "pages", "guest memory", "share", "as coded", "of its size", "what it is"}}
	memory, _ := d.sums()
	for _, c := range codingsOf(d) {
		pages, bytes := d.Pages[c.name], d.Bytes[c.name]
		of := float64(pages) * pageBytes
		t.Rows = append(t.Rows, []cell{{Text: c.name, Color: c.color}, {Text: group(pages), Class: "num"}, {Text: bytesText(of), Class: "num"},
			percent(of, memory), {Text: bytesText(float64(bytes)), Class: "num"}, percent(float64(bytes), of), {Text: c.means, Class: "mute"}})
	}
	return t
}

// pathTable has what each path carried. The mean is over the time in which memory moved.
func (d *DataPath) pathTable(r *Report, m *Migration) table {
	t := table{Title: "Paths", Head: []string{"path", "bytes", "share", "mean rate", "broke", "why, the last time"}}
	var sum float64
	for _, p := range d.Paths {
		sum += float64(p.Bytes)
	}
	took := m.memoryTook()
	for _, p := range d.Paths {
		mean := cell{Text: dash, Hint: "how long memory took is not known", Class: "num null"}
		if took > 0 {
			mean = cell{Text: rate(float64(p.Bytes) * 8 / 1e6 / took), Class: "num"}
		}
		broke := cell{Text: "never", Class: "mute"}
		switch {
		case p.Unopened && p.Last != "":
			broke = cell{Text: "never opened", Class: "bad"}
		case p.Unopened: // nothing was told of why not, as where all was there sooner
			broke.Text = "never opened"
		case p.Died > 0:
			broke = cell{Text: oneline.Many(int(p.Died), "time"), Class: "bad"}
		}
		t.Rows = append(t.Rows, []cell{{Text: p.Path, Color: pathColor(r, p.Path)}, {Text: bytesText(float64(p.Bytes)), Class: "num"},
			percent(float64(p.Bytes), sum), mean, broke, {Text: p.Last, Class: "mute"}})
	}
	return t
}

// pathColor is the one that the path has in the picture.
func pathColor(r *Report, path string) string {
	if r.Series != nil {
		if i := slices.IndexFunc(r.Series.Paths, func(p PathSeries) bool { return p.Path == path }); i >= 0 {
			return pathVar(i)
		}
	}
	return "mute"
}

// memoryTook is for how long memory moved, seconds; 0: not known.
func (m *Migration) memoryTook() float64 {
	for _, ph := range m.Phases {
		if ph.Name == string(migration.Copy) {
			end := ph.EndS
			if m.MemoryS != nil {
				end = max(end, *m.MemoryS)
			}
			return max(end-ph.StartS, 0)
		}
	}
	return 0
}

// dirtyRate is how fast the n-th migration's guest wrote, nothing where it is not
// known.
func (r *Report) dirtyRate(n int) []card {
	if r.Series == nil {
		return nil
	}
	var seen []float64
	for _, s := range r.Series.Pages {
		for _, v := range s.Dirty {
			if s.Migration == n && !math.IsNaN(v) {
				seen = append(seen, v)
			}
		}
	}
	if len(seen) == 0 {
		return nil
	}
	slices.Sort(seen)
	return []card{{Label: "Dirty rate", Value: rate(seen[len(seen)/2]), Note: "what the guest wrote, each page once a second or so; at most " + rate(seen[len(seen)-1])}}
}

// facts are the figures beside the bars.
func (d *DataPath) facts() []card {
	list := []card{
		{Label: "Rounds read", Value: group(d.Rounds), Note: "of what QEMU found written"},
		{Label: "Hot pages", Value: group(d.HotPages), Note: bytesText(float64(d.HotPages)*pageBytes) + " written again twice or more"},
	}
	if d.LargestQueue > 0 || d.LargestSpill > 0 {
		c := card{Label: "Largest queue", Value: bytesText(float64(d.LargestQueue)), Note: "nothing was put into a file"}
		if d.LargestQueue == 0 { // nobody looked while there was one, as where the guest was stopped first
			c.Value = dash
		}
		if d.LargestSpill > 0 {
			c.Note = bytesText(float64(d.LargestSpill)) + " of memory waited in a file"
		}
		list = append(list, c)
	}
	again := card{Label: "Sent again", Value: bytesText(float64(d.Repeated)), Note: "no path broke or was late"}
	if d.Repeated > 0 {
		again.Note = "as a path had broken or was late"
	}
	if d.Missed > 0 {
		again.Note += "; " + group(d.Missed) + " pages whole after all"
	}
	return append(list, card{Label: "Never sent", Value: group(d.Skipped), Note: "versions of pages that a newer one replaced in the queue"}, again)
}

// percent is a share as people read it.
func percent(of, whole float64) cell {
	if whole <= 0 {
		return cell{Text: dash, Class: "num mute"}
	}
	return cell{Text: number(of/whole*100) + " %", Class: "num mute"}
}
