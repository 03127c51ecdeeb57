package record

import (
	"testing"
	"time"
)

// The guest's own clock stands still while it executes nothing: what it did between the
// two ticks that were heard is no downtime.
func TestVMDowntime(t *testing.T) {
	const ms = 1_000_000
	for _, c := range []struct {
		name        string
		last, first *Tick
		want        time.Duration
		known       bool
	}{
		{"heard at once", &Tick{1, 1000 * ms, 500 * ms}, &Tick{2, 1105 * ms, 505 * ms}, 100 * time.Millisecond, true},
		{"heard late", &Tick{1, 1000 * ms, 500 * ms}, &Tick{40, 1400 * ms, 800 * ms}, 100 * time.Millisecond, true},
		{"without its clock", &Tick{1, 1000 * ms, 0}, &Tick{2, 1105 * ms, 0}, 105 * time.Millisecond, true},
		{"an older host there", &Tick{1, 1000 * ms, 500 * ms}, &Tick{2, 1105 * ms, 0}, 105 * time.Millisecond, true},
		{"a clock that went back", &Tick{1, 1000 * ms, 500 * ms}, &Tick{2, 1105 * ms, 400 * ms}, 105 * time.Millisecond, true},
		{"a clock that ran on", &Tick{1, 1000 * ms, 500 * ms}, &Tick{2, 1105 * ms, 700 * ms}, 105 * time.Millisecond, true},
		{"not heard there", &Tick{1, 1000 * ms, 500 * ms}, nil, 0, false},
		{"not heard here", nil, &Tick{1, 1000 * ms, 500 * ms}, 0, false},
	} {
		r := &Report{LastTick: c.last, FirstTick: c.first}
		if got, known := r.VMDowntime(); got != c.want || known != c.known {
			t.Errorf("%s: %v, %v; want %v, %v", c.name, got, known, c.want, c.known)
		}
	}
}

// TestVMDowntimeIsNoLessThanTheStop: from the stop's end to the start's beginning the guest stood still,
// whatever was counted; a start of an earlier switch, or whose stop is not known, tells nothing.
func TestVMDowntimeIsNoLessThanTheStop(t *testing.T) {
	const ms = 1_000_000
	last, first := &Tick{1, 1000 * ms, 500 * ms}, &Tick{2, 1100 * ms, 570 * ms} // 30 ms
	for _, c := range []struct {
		name   string
		paused int64
		steps  []Step
		want   time.Duration
	}{
		{"longer by its hosts", 1010 * ms, []Step{{StepStart, 1060 * ms, 9}}, 50 * time.Millisecond},
		{"longer by its counter", 1010 * ms, []Step{{StepStart, 1020 * ms, 9}}, 30 * time.Millisecond},
		{"the stop is not known", 0, []Step{{StepStart, 1060 * ms, 9}}, 30 * time.Millisecond},
		{"before the stop", 1010 * ms, []Step{{StepStart, 900 * ms, 9}}, 30 * time.Millisecond},
		{"tried twice, the first may have started it", 1010 * ms, []Step{{StepStart, 1045 * ms, 9}, {StepStart, 1090 * ms, 1}}, 35 * time.Millisecond},
		{"no steps", 1010 * ms, nil, 30 * time.Millisecond},
	} {
		r := &Report{LastTick: last, FirstTick: first, Paused: c.paused, Critical: c.steps}
		if got, known := r.VMDowntime(); got != c.want || !known {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestVMDowntimeIsNoMoreThanFromStopToStart: before the stop's beginning and after the start's end the guest ran,
// whatever its clock says.
func TestVMDowntimeIsNoMoreThanFromStopToStart(t *testing.T) {
	const ms = 1_000_000
	stop, early, start := Step{StepStop, 1005 * ms, 5}, Step{StepStop, 500 * ms, 5}, Step{StepStart, 1060 * ms, 4}
	for _, c := range []struct {
		name  string
		first Tick
		steps []Step
		want  time.Duration
	}{
		{"its clock is right", Tick{2, 1100 * ms, 545 * ms}, []Step{early, stop, start}, 55 * time.Millisecond},
		{"its clock is fast", Tick{9, 2400 * ms, 9000 * ms}, []Step{early, stop, start}, 59 * time.Millisecond},
		{"its clock is slow", Tick{9, 2400 * ms, 700 * ms}, []Step{stop, start}, 59 * time.Millisecond},
		{"it was started twice", Tick{9, 2400 * ms, 700 * ms}, []Step{stop, start, {StepStart, 1100 * ms, 6}}, 101 * time.Millisecond},
		{"the stop is not known", Tick{9, 2400 * ms, 9000 * ms}, []Step{start}, 1400 * time.Millisecond},
		{"the start is not known", Tick{9, 2400 * ms, 9000 * ms}, []Step{stop}, 1400 * time.Millisecond},
	} {
		r := &Report{LastTick: &Tick{1, 1000 * ms, 500 * ms}, FirstTick: &c.first, Paused: 1010 * ms, Critical: c.steps}
		if got, known := r.VMDowntime(); got != c.want || !known {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// Of several ticks the one counts whose hearing was delayed least; without the guest's
// clock the last at the source, and the first at the destination.
func TestTruerTick(t *testing.T) {
	const ms = 1_000_000
	tick := func(at, mono int64) *Tick { return &Tick{1, at * ms, mono * ms} }
	for _, c := range []struct {
		name     string
		t, later *Tick
		latest   bool
		keeps    bool
	}{
		{"none yet", nil, tick(10, 5), true, false},
		{"heard later than it was sent", tick(100, 50), tick(140, 55), true, true},
		{"heard sooner", tick(140, 50), tick(145, 85), false, false},
		{"too old at the source", tick(100, 50), tick(1200, 1140), true, false},
		{"not too old at the destination", tick(100, 50), tick(1200, 1140), false, true},
		{"no clock, source", tick(100, 0), tick(200, 0), true, false},
		{"no clock, destination", tick(100, 0), tick(200, 0), false, true},
	} {
		if got := Truer(c.t, c.later, c.latest); (got == c.t) != c.keeps {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}
