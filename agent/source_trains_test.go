package agent

import (
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/agent/peer"
	"godwit/agent/probe"
	"godwit/agent/ways"
	"godwit/policy"
)

// TestTrain: a path is tried with no more than it carries at a small part of its rate, and not at all where that would
// tell nothing.
func TestTrain(t *testing.T) {
	for rate, want := range map[int64]int{0: trainPackets, 1e9: trainPackets, 5e6: trainPackets, 1e6: 58, 500e3: 0, 8e3: 0} {
		packets, every := train(rate, false)
		if more, _ := train(rate, true); more < packets || want == trainPackets && more != trainLonger*trainPackets {
			t.Errorf("%d bit/s: %d packets, and %d where losses cost", rate, packets, more)
		}
		if packets != want || packets > 0 && (time.Duration(packets)*every > trainLimit || rate > 0 && probe.Least*8/every.Seconds() > 1.001*trainShare*float64(rate)) {
			t.Errorf("%d bit/s: %d packets, one each %v; want %d", rate, packets, every, want)
		}
	}
}

// TestLoses: a packet or two may be lost anywhere; of more a path is taken to lose as many each way.
func TestLoses(t *testing.T) {
	for _, c := range []struct {
		answered int
		want     float64
	}{{150, 0}, {149, 0}, {148, 0}, {135, 0.051}, {0, 0}} {
		if got := loses(probe.Train{Sent: 150, Answered: c.answered, RTT: time.Second}); math.Abs(got.Share-c.want) > 0.001 || got.RTT != time.Second {
			t.Errorf("%d of 150: %+v, want %v", c.answered, got, c.want)
		}
	}
}

// TestLossyPaths: what a path loses is of it alone, and a path that was not tried loses nothing.
func TestLossyPaths(t *testing.T) {
	m, n := budgeted(t, "precopy", 300*time.Millisecond, 20*time.Millisecond)
	if got := m.lossyPaths(n); got.Share != 0 || got.rate != 100e6 || len(got.notes) > 0 || got.RTT != 20*time.Millisecond {
		t.Errorf("not tried: %+v", got)
	}
	told := make(chan probe.Train, 1)
	told <- probe.Train{Sent: 100, Answered: 81, RTT: 20 * time.Millisecond}
	m.work.trains = map[[2]netip.Addr]<-chan probe.Train{ways.Ends(m.paths(n)[0]): told}
	if got := m.lossyPaths(n); math.Abs(got.Share-0.1) > 0.001 || got.rate > 90.1e6 || got.rate == 0 || len(got.notes) == 0 && got.rate < 89.9e6 {
		t.Errorf("a tenth is lost each way: %+v", got)
	}
	note := lossNote(peer.Path{Name: "a-b", Rate: 100e6}, policy.Loses{Share: 0.05}, "cubic", 1.26e6)
	if want := "path a-b lost 5.0 % of small packets: a connection by cubic, which takes that for congestion, is foreseen to carry 1.3 of 100 Mbit/s"; note != want {
		t.Errorf("%q, want %q", note, want)
	}
}

// TestLossOf: each path that loses some is told, and what a path loses counts beside one of which nobody knows what it
// carries.
func TestLossOf(t *testing.T) {
	const ms = time.Millisecond
	whole, tenth, one := probe.Train{Sent: 100, Answered: 100, RTT: 20 * ms}, probe.Train{Sent: 100, Answered: 81, RTT: 20 * ms}, probe.Train{Sent: 100, Answered: 99, RTT: 20 * ms}
	path := func(name string, rate int64, train probe.Train, heeds string) tried {
		return tried{peer.Path{Name: name, Rate: rate}, train, heeds}
	}
	for name, c := range map[string]struct {
		all   []tried
		share float64
		rate  int64
		notes []string // each begins so
	}{
		"none":                       {nil, 0, 0, nil},
		"one is faster":              {[]tried{path("a", 300e6, whole, ""), path("b", 100e6, tenth, "")}, 0.025, 390e6, nil},
		"nobody knows of one":        {[]tried{path("a", 0, whole, ""), path("b", 100e6, tenth, "")}, 0.05, 0, nil},
		"which loses some":           {[]tried{path("a", 0, tenth, ""), path("b", 100e6, whole, "")}, 0.05, 0, nil},
		"nobody knows of any":        {[]tried{path("a", 0, tenth, ""), path("b", 0, tenth, "")}, 0.1, 0, nil},
		"both carry less by that":    {[]tried{path("a", 100e6, tenth, "cubic"), path("b", 100e6, tenth, "cubic")}, 0.1, -1, []string{"path a lost 10.0 %", "path b lost 10.0 %"}},
		"one does, one may":          {[]tried{path("a", 100e6, tenth, "cubic"), path("b", 100e6, one, "cubic")}, 0, -1, []string{"path a lost 10.0 %", "path b lost 1 of 100"}},
		"one may, one was not tried": {[]tried{path("a", 100e6, one, "cubic"), path("b", 100e6, probe.Train{}, "cubic")}, 0, 200e6, []string{"path a lost 1 of 100"}},
	} {
		got := lossOf(c.all, 0)
		told := len(got.notes) == len(c.notes)
		for i := 0; told && i < len(c.notes); i++ {
			told = strings.HasPrefix(got.notes[i], c.notes[i])
		}
		if !told || math.Abs(got.Share-c.share) > 0.003 || c.rate >= 0 && math.Abs(float64(got.rate-c.rate)) > 0.1e6 || c.rate < 0 && got.rate > 110e6 {
			t.Errorf("%s: %+v, want %+v", name, got, c)
		}
	}
	m, _ := budgeted(t, "precopy", 300*ms, 20*ms)
	m.notePath([]string{"path a", "path b"}, policy.DiskFacts{}, policy.Forecast{})
	if got := m.rec.Snapshot().Notes; !slices.Equal(got, []string{"path a", "path b"}) {
		t.Errorf("noted: %q", got)
	}
}

// TestDiskWritesSince: how often a guest writes is of the time between two looks; of one alone, or of a QEMU that was
// started anew, nothing is.
func TestDiskWritesSince(t *testing.T) {
	now := time.Now()
	first := &diskWrites{now, 10, 40960}
	for _, c := range []struct {
		later      *diskWrites
		times, per float64
	}{
		{&diskWrites{now.Add(500 * time.Millisecond), 138, 40960 + 128*16384}, 256, 16384},
		{&diskWrites{now.Add(time.Second), 10, 40960}, 0, 0},
		{&diskWrites{now, 11, 50000}, 0, 0},
		{&diskWrites{now.Add(time.Second), 3, 500}, 0, 0},
		{nil, 0, 0},
	} {
		if times, per := first.since(c.later); times != c.times || per != c.per {
			t.Errorf("%+v: %v times of %v bytes", c.later, times, per)
		}
	}
}
