package report

import (
	"bytes"
	_ "embed" // the page's parts
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"godwit/migration"
)

//go:embed page/page.gohtml
var pageText string

//go:embed page/style.css
var pageStyle string

//go:embed page/hover.js
var pageHover string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// page is what the template is filled with.
type page struct {
	Title, Way, When string
	OK               bool
	Unmet            []string
	Cards            []card
	Style            template.CSS
	Hover            template.JS
	Data             template.JS
	Pictures         []pictureOf
	Phases           []phaseKey
	DataPaths        []dataPathOf
	Tables           []table
	Remarks          []string // what the agents remarked
	Notes            []string // what could not be measured
	Leftovers        []string
	Machine          []string
	Words            []word
}

// phaseKey is a phase and the page's variable for its colour.
type phaseKey struct{ Name, Var string }

func phases() []phaseKey {
	var out []phaseKey
	for _, name := range phaseNames() {
		out = append(out, phaseKey{name, phaseVar(name)})
	}
	return out
}

type pictureOf struct {
	Title, About string
	Open         bool
	SVG          template.HTML
}

// maxCloseUps bounds the pictures of single switches.
const maxCloseUps = 6

// HTML writes the report as one file that needs nothing else: no request leaves
// the browser that shows it.
func HTML(w io.Writer, r *Report) error {
	data, err := json.Marshal(hoverData(r))
	if err != nil {
		return fmt.Errorf("write page of %s: %w", r.Scenario, err)
	}
	p := page{
		Title: r.Scenario, Way: way(r), When: when(r), OK: r.OK, Unmet: r.Unmet,
		Cards: cards(r), Pictures: pictures(r), Phases: phases(), DataPaths: dataPaths(r), Tables: tables(r),
		Remarks: remarks(r), Notes: notes(r), Leftovers: r.Leftovers, Machine: machine(r), Words: words,
		// Our own files, and JSON as json.Marshal escapes it for scripts.
		Style: template.CSS(pageStyle), Hover: template.JS(pageHover), Data: template.JS(data),
	}
	var out bytes.Buffer
	if err := pageTemplate.Execute(&out, p); err != nil {
		return fmt.Errorf("write page of %s: %w", r.Scenario, err)
	}
	if _, err := out.WriteTo(w); err != nil {
		return fmt.Errorf("write page of %s: %w", r.Scenario, err)
	}
	return nil
}

// pictures are the whole run, and the switch of each migration closer.
func pictures(r *Report) []pictureOf {
	if r.Series == nil {
		return nil
	}
	whole := wholeRun(r)
	list := []pictureOf{{Title: "The whole run", Open: true,
		SVG: template.HTML(drawPicture(r, whole, "The whole run: "+way(r)))}}
	for i := range r.Migrations {
		m := &r.Migrations[i]
		win, ok := closeUp(m, whole)
		if !ok || len(list) > maxCloseUps {
			continue
		}
		title := fmt.Sprintf("The switch of migration %d, closer", i+1)
		list = append(list, pictureOf{Title: title, Open: len(r.Migrations) == 1,
			About: fmt.Sprintf("%s, %s → %s: %s s of the run", m.Guest, m.From, m.To, number(win.length())),
			SVG:   template.HTML(drawPicture(r, win, title))})
	}
	return list
}

// wholeRun spans everything that was seen.
func wholeRun(r *Report) span {
	win := span{0, r.DurationS}
	for _, f := range r.Series.Flows {
		if len(f.T) > 0 {
			win.from = min(win.from, f.T[0])
			win.to = max(win.to, f.T[len(f.T)-1])
		}
	}
	for i := range r.Migrations {
		win.to = max(win.to, r.Migrations[i].endS())
	}
	win.from = max(win.from, -5)
	if math.IsNaN(win.to) || win.to <= win.from {
		win.to = win.from + 1
	}
	return win
}

// closeUp spans a migration's switch and handover with what stands beside them.
func closeUp(m *Migration, whole span) (span, bool) {
	sw, ok := m.phase(string(migration.Switch))
	if !ok {
		return span{}, false
	}
	end := sw.to + 1
	if ho, ok := m.phase(string(migration.Handover)); ok {
		end = min(ho.to, sw.to+3) + 0.5
	}
	return span{max(sw.from-0.7, whole.from), min(end, whole.to)}, end > sw.from
}

// hoverData is what the page's script reads out at the pointer.
func hoverData(r *Report) any {
	type flow struct {
		Name string `json:"name"`
		T    Column `json:"t"`
		Mbps Column `json:"mbps"`
		RTT  Column `json:"rtt"`
		Gap  Column `json:"gap"`
	}
	type pages struct {
		Guest     string `json:"guest"`
		T         Column `json:"t"`
		Left      Column `json:"left"`
		Queue     Column `json:"queue"`
		Delivered Column `json:"delivered"`
		Dirty     Column `json:"dirty"`
	}
	list, memory := []flow{}, []pages{}
	if r.Series != nil {
		for _, f := range r.Series.Flows[:min(len(r.Series.Flows), maxFlows)] {
			list = append(list, flow{f.Name, f.T, f.Mbps, f.RTT, f.Gap})
		}
		for _, s := range r.Series.Pages {
			memory = append(memory, pages{s.Guest, s.T, s.Left, s.Queue, s.Delivered, s.Dirty})
		}
	}
	return map[string]any{"flows": list, "pages": memory}
}

// way says where the guests went: `web: montreal → sanjose → dublin`, and of one that runs nowhere, `web: montreal, lost`.
func way(r *Report) string {
	var guests []string
	stops := map[string][]string{}
	nowhere := map[string]string{}
	for _, m := range r.Migrations {
		if stops[m.Guest] == nil {
			guests = append(guests, m.Guest)
			stops[m.Guest] = []string{m.From}
		}
		if m.SwitchedS != nil || m.Outcome == Completed {
			stops[m.Guest] = append(stops[m.Guest], m.To)
		}
		switch {
		case m.Outcome == Refused: // what was before is so still
		case m.nowhere():
			nowhere[m.Guest] = map[Outcome]string{Failed: ", lost", InDoubt: ", in doubt", "": ", without outcome"}[m.Outcome]
		default:
			delete(nowhere, m.Guest)
		}
	}
	parts := []string{}
	for _, g := range guests {
		list := stops[g]
		switch {
		case len(list) == 1 && nowhere[g] == "":
			parts = append(parts, g+" stays at "+list[0])
		case len(list) > 6:
			list = slices.Concat(list[:3], []string{"…"}, list[len(list)-2:])
			fallthrough
		default:
			parts = append(parts, g+": "+strings.Join(list, " → ")+nowhere[g])
		}
	}
	return strings.Join(parts, "; ")
}

func when(r *Report) string {
	text := number(r.DurationS) + " s"
	if at, err := time.Parse(time.RFC3339Nano, r.Started); err == nil {
		text = at.Format("2006-01-02 15:04:05 MST") + ", " + text
	}
	return text
}

func machine(r *Report) []string {
	var list []string
	for k, v := range r.Machine {
		list = append(list, k+": "+v)
	}
	slices.Sort(list)
	return list
}

// mostRemarks bounds those of the page; report.json has them all.
const mostRemarks = 200

// remarks lists what the agents remarked, each under its migration.
func remarks(r *Report) []string {
	var list []string
	for i := range r.Migrations {
		for _, note := range r.Migrations[i].Notes {
			list = append(list, label(i, &r.Migrations[i])+": "+note)
		}
	}
	if more := len(list) - mostRemarks; more > 0 {
		list = append(list[:mostRemarks], fmt.Sprintf("and %d more in report.json", more))
	}
	return list
}

// notes lists every number that is missing and why.
func notes(r *Report) []string {
	var list []string
	add := func(of string, reasons map[string]string) {
		var names []string
		for name := range reasons {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			list = append(list, fmt.Sprintf("%s of %s: %s", name, of, reasons[name]))
		}
	}
	for i := range r.Migrations {
		add(label(i, &r.Migrations[i]), r.Migrations[i].WhyNull)
	}
	for i := range r.Traffic {
		add("traffic "+r.Traffic[i].Name, r.Traffic[i].WhyNull)
	}
	return list
}
