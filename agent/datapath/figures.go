package datapath

import (
	"fmt"

	"godwit/agent/record"
	"godwit/policy"
	"godwit/transfer/encode"
	"godwit/transfer/pages"
	"godwit/transfer/proxy"
)

// Figures are what people are told of lanes of which s was seen, and whose longest queue was of so many bytes.
func Figures(s proxy.Stats, longestQueue int64) *record.DataPath {
	out := &record.DataPath{
		Queue: s.Queue, LargestQueue: longestQueue, LargestSpill: s.SpilledMost,
		Waiting: s.Waiting, InFlight: s.InFlight, Delivered: s.Delivered, HotPages: s.Hot, Rounds: s.Round, ReadBytes: s.Read, SentBytes: s.Acked, Repeated: s.Repeated,
		Skipped: s.Superseded, Missed: s.Missed, TailBytes: s.Tail, Offered: s.Offered, Opaque: s.Opaque, Pages: map[string]int64{}, Bytes: map[string]int64{}, Levels: map[string]int{},
	}
	for level, n := range s.Levels {
		out.Levels[encode.Level(level).String()] = n //nolint:gosec // few
	}
	for coding := range pages.Codings {
		if n := s.Codings.Pages[coding]; n > 0 {
			name := record.CodingNames[coding]
			out.Pages[name], out.Bytes[name] = int64(n), int64(s.Codings.Bytes[coding]) //nolint:gosec // counts
		}
	}
	for _, p := range s.Paths {
		out.Paths = append(out.Paths, record.PathRate{
			Path: p.Path, Lanes: p.Lanes, Bytes: p.Acked, Rate: p.Rate, Carries: &p.Carries, RTTMS: float64(p.RTT.Microseconds()) / 1000, Died: p.Died, Unopened: !p.Stood, Last: p.Last,
		})
	}
	return out
}

// Left says in words how much of a guest's memory has not arrived, in QEMU or here: of little, that it is that, and not
// that it is nothing.
func Left(look policy.Look) string {
	left := float64(max(look.Left, look.Remaining)) / 1e6
	if left < 0.1 {
		return "less than 0.1 MB is left"
	}
	return fmt.Sprintf("%.1f MB are left", left)
}

// WhyNoLane is why the paths on which no lane works cannot be used; "" where all can, or QEMU sends by itself.
func WhyNoLane(d *record.DataPath) (why string) {
	if d == nil {
		return ""
	}
	for _, p := range d.Paths {
		if p.Lanes == 0 && p.Last != "" {
			why += fmt.Sprintf(", path %s: %s", p.Path, p.Last)
		}
	}
	return why
}
