package report

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strconv"
)

// Series is what the picture is drawn from. Every time is in seconds from time
// 0; what happened before it has negative times.
type Series struct {
	Flows    []FlowSeries `json:"flows"`
	Probes   []Probe      `json:"probes"`
	Subflows []Subflow    `json:"subflows"`
	Paths    []PathSeries `json:"paths"`
	Pages    []PageSeries `json:"pages"` // one for each migration that sent memory, in their order
	Events   []Event      `json:"events"`
	Steps    []StepDone   `json:"steps"`
}

// whole is a copy in which no list is nil; nil where there is no series.
func (s *Series) whole() *Series {
	if s == nil {
		return nil
	}
	return &Series{
		Flows: some(s.Flows), Probes: some(s.Probes), Subflows: some(s.Subflows), Paths: some(s.Paths),
		Pages: some(s.Pages), Events: some(s.Events), Steps: some(s.Steps),
	}
}

// FlowSeries is one flow, a row for each sample (the lab takes one every 100 ms).
type FlowSeries struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
	T    Column `json:"t_s"`
	Mbps Column `json:"mbps"`
	RTT  Column `json:"rtt_ms"`
	Gap  Column `json:"gap_ms"` // longest wait that ended in the sample, or lasts at its end
}

// Probe is the UDP echo to one guest, a row for each 100 ms.
type Probe struct {
	Guest string `json:"guest"`
	T     Column `json:"t_s"`
	Gap   Column `json:"gap_ms"` // longest time without a reply that ended in the sample, or lasts
	RTT   Column `json:"rtt_ms"`
}

// Subflow is one address pair of a flow and the time it existed.
type Subflow struct {
	Flow   string   `json:"flow"`
	Local  string   `json:"local"`  // the client's address
	Remote string   `json:"remote"` // the guest's
	FromS  float64  `json:"from_s"`
	ToS    *float64 `json:"to_s"` // nil: it lived to the end
}

// PathSeries is what left the source's uplinks towards one path, added up.
type PathSeries struct {
	Path  string `json:"path"` // SOURCE_UPLINK-DESTINATION_UPLINK
	T     Column `json:"t_s"`
	Bytes Column `json:"bytes"`
}

// PageSeries is memory on its way, as its source's agent told it about every 200 ms.
type PageSeries struct {
	Migration int    `json:"migration"` // its place in the report's list, from 1
	Guest     string `json:"guest"`
	T         Column `json:"t_s"`
	Left      Column `json:"left_bytes"`      // of guest memory that the destination lacks
	Queue     Column `json:"queue_bytes"`     // of those: read from QEMU, waiting or on their way; our own data path
	Delivered Column `json:"delivered_bytes"` // of which the destination has some version; our own data path
	Hot       Column `json:"hot_bytes"`       // written again twice or more; our own data path
	Dirty     Column `json:"dirty_mbps"`      // what the guest writes, each page once a second or so
}

// PageSample is a row of it. NaN is a number that is not known.
type PageSample struct{ T, Left, Queue, Delivered, Hot, Dirty float64 }

// mostPageSamples bounds the rows of a migration.
const mostPageSamples = 600

// AddPages adds a migration's samples, of too many every n-th and the last. Nothing is added where
// there are none.
func (s *Series) AddPages(migration int, guest string, samples []PageSample) {
	if len(samples) == 0 {
		return
	}
	p := PageSeries{Migration: migration, Guest: guest}
	every := (len(samples) + mostPageSamples - 2) / (mostPageSamples - 1)
	for i, row := range samples {
		if i%every != 0 && i != len(samples)-1 {
			continue
		}
		p.T, p.Left, p.Queue = append(p.T, row.T), append(p.Left, row.Left), append(p.Queue, row.Queue)
		p.Delivered, p.Hot, p.Dirty = append(p.Delivered, row.Delivered), append(p.Hot, row.Hot), append(p.Dirty, row.Dirty)
	}
	s.Pages = append(s.Pages, p)
}

// Event is one event of a migration, such as SOURCE_SUSPEND.
type Event struct {
	AtS   float64 `json:"at_s"`
	Name  string  `json:"name"`
	Guest string  `json:"guest,omitempty"`
}

// StepDone is a step of the scenario that took place.
type StepDone struct {
	AtS  float64  `json:"at_s"`
	EndS *float64 `json:"end_s"` // where it lasts, such as a cut
	Text string   `json:"text"`
}

// Flow finds the flow's series, or begins it.
func (s *Series) Flow(name, kind string) *FlowSeries {
	return entry(&s.Flows, func(f FlowSeries) bool { return f.Name == name }, FlowSeries{Name: name, Kind: kind})
}

// Add appends one sample. NaN is a number that is not known.
func (f *FlowSeries) Add(t, mbps, rtt, gap float64) {
	f.T = append(f.T, t)
	f.Mbps = append(f.Mbps, mbps)
	f.RTT = append(f.RTT, rtt)
	f.Gap = append(f.Gap, gap)
}

// Probe finds the guest's probe series, or begins it.
func (s *Series) Probe(guest string) *Probe {
	return entry(&s.Probes, func(p Probe) bool { return p.Guest == guest }, Probe{Guest: guest})
}

// Add appends one sample. NaN is a number that is not known.
func (p *Probe) Add(t, gap, rtt float64) {
	p.T = append(p.T, t)
	p.Gap = append(p.Gap, gap)
	p.RTT = append(p.RTT, rtt)
}

// Path finds the path's series, or begins it.
func (s *Series) Path(path string) *PathSeries {
	return entry(&s.Paths, func(p PathSeries) bool { return p.Path == path }, PathSeries{Path: path})
}

// Add appends one reading of the path's counter.
func (p *PathSeries) Add(t, bytes float64) {
	p.T = append(p.T, t)
	p.Bytes = append(p.Bytes, bytes)
}

// Column is a list of numbers: three digits after the point in JSON, NaN and
// the infinities as null, in one line.
type Column []float64

// MarshalJSON writes the column.
func (c Column) MarshalJSON() ([]byte, error) {
	out := make([]byte, 0, 2+8*len(c))
	out = append(out, '[')
	for i, v := range c {
		if i > 0 {
			out = append(out, ',')
		}
		if math.IsNaN(v) || math.IsInf(v, 0) {
			out = append(out, "null"...)
			continue
		}
		text := strconv.AppendFloat(nil, v, 'f', 3, 64)
		text = bytes.TrimRight(text, "0")
		out = append(out, bytes.TrimSuffix(text, []byte("."))...)
	}
	return append(out, ']'), nil
}

// UnmarshalJSON reads it back, null as NaN.
func (c *Column) UnmarshalJSON(data []byte) error {
	var list []*float64
	if err := json.Unmarshal(data, &list); err != nil {
		return err
	}
	*c = make(Column, len(list))
	for i, v := range list {
		(*c)[i] = math.NaN()
		if v != nil {
			(*c)[i] = *v
		}
	}
	return nil
}

// entry is the one of all that is meant, or a new one. It stays where it is until the next new one.
func entry[T any](all *[]T, meant func(T) bool, anew T) *T {
	i := slices.IndexFunc(*all, meant)
	if i < 0 {
		i = len(*all)
		*all = append(*all, anew)
	}
	return &(*all)[i]
}
