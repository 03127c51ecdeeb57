package report

import (
	"math"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// TestPagesUnderThePhases: below the phases, on their time axis, what is left falls to nothing
// as what is delivered rises.
func TestPagesUnderThePhases(t *testing.T) {
	r := sampleLanes()
	r.Series.Pages = r.Series.Pages[:1]
	svg := drawPicture(r, wholeRun(r), "the whole run")
	last := 0
	for _, want := range []string{">web<", ">runs at<", ">Pages<", ">left to send<", ">of it in the queue<", ">delivered<", ">Rate<", ">the guest writes<", ">Throughput<"} {
		at := strings.Index(svg, want)
		if at < last {
			t.Fatalf("%s is at %d, after what comes before it at %d", want, at, last)
		}
		last = at
	}
	ends := func(style string) (x1, y1, x2, y2 float64) {
		t.Helper()
		d := regexp.MustCompile(`<path d="M([\d.]+) ([\d.]+)[^"]*L([\d.]+) ([\d.]+)" class="curve[^"]*" style="stroke:var\(--` + style + `\)"`).FindStringSubmatch(svg)
		if d == nil {
			t.Fatalf("no curve of %s", style)
		}
		return number64(t, d[1]), number64(t, d[2]), number64(t, d[3]), number64(t, d[4])
	}
	begin, _ := r.Migrations[0].phase("copy")
	end, _ := r.Migrations[0].phase("switch")
	p := &picture{r: r, win: wholeRun(r)}
	x1, high, x2, floor := ends(pageColors[0])
	if math.Abs(x1-p.x(begin.from)) > 0.1 || math.Abs(x2-p.x(end.to)) > 0.1 {
		t.Errorf("it is drawn from %.1f to %.1f, the phases from %.1f to %.1f", x1, x2, p.x(begin.from), p.x(end.to))
	}
	if floor-high != 92 {
		t.Errorf("what is left falls from %.1f to %.1f, want 92 down", high, floor)
	}
	if _, from, _, to := ends("good"); from != floor || to != high {
		t.Errorf("what is delivered rises from %.1f to %.1f, want %.1f to %.1f", from, to, floor, high)
	}
}

// TestPagesOfQEMU: of QEMU's own transfers only what is left is known, and nothing else is named.
func TestPagesOfQEMU(t *testing.T) {
	r := sampleLanes()
	r.Series.Pages = r.Series.Pages[1:]
	svg := drawPicture(r, wholeRun(r), "the whole run")
	if !strings.Contains(svg, ">left to send<") || strings.Contains(svg, ">of it in the queue<") || strings.Contains(svg, ">delivered<") {
		t.Error("the legend names what is not known, or not what is")
	}
	if svg := drawPicture(sample(), wholeRun(sample()), "no pages"); strings.Contains(svg, ">Pages<") {
		t.Error("a lane of nothing")
	}
}

// TestPagesAreBounded: however long a migration took, its first and its last sample stay.
func TestPagesAreBounded(t *testing.T) {
	for _, n := range []int{1, 2, mostPageSamples - 1, mostPageSamples, mostPageSamples + 1, 12345} {
		var s Series
		rows := make([]PageSample, n)
		for i := range rows {
			rows[i].T = float64(i)
		}
		s.AddPages(1, "web", rows)
		kept := s.Pages[0].T
		if len(kept) > mostPageSamples || len(kept) < min(n, mostPageSamples/2) || kept[0] != 0 || kept[len(kept)-1] != float64(n-1) || len(s.Pages[0].Dirty) != len(kept) {
			t.Errorf("of %d samples %d are kept, to %v", n, len(kept), kept[len(kept)-1])
		}
	}
	var s Series
	if s.AddPages(1, "web", nil); len(s.Pages) != 0 {
		t.Error("a series of nothing")
	}
}

func TestPathRate(t *testing.T) {
	p := PathSeries{T: Column{0, 0.5, 1, 1, 2}, Bytes: Column{0, 1e6, 1e6, 2e6, 1e6}}
	if diff := cmp.Diff(Column{math.NaN(), 16, 0, math.NaN(), 0}, p.rate(), cmpopts.EquateNaNs()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestHighestIsKnown: a number that is not known is not the highest.
func TestHighestIsKnown(t *testing.T) {
	p := &picture{win: span{0, 10}}
	if high := p.highest(Column{1, 2, 3, 11}, Column{4, math.NaN(), 7, 99}); high != 7 {
		t.Errorf("%v, want 7", high)
	}
}
