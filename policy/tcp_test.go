package policy

import (
	"testing"
	"time"
)

// TestLosesCarries: what is lost bounds what a connection carries, the more the longer its round trips are; what is not
// lost, nothing.
func TestLosesCarries(t *testing.T) {
	for _, c := range []struct {
		loss        float64
		rtt         time.Duration
		least, most int64 // bit/s
	}{
		{0, 40 * ms, 0, 0},
		{0.05, 0, 0, 0},
		{-1, 40 * ms, 0, 0},
		{0.0001, 40 * ms, 30e6, 36e6}, // Mathis: MSS/RTT·1.22/√p, 35
		{0.01, 40 * ms, 2.5e6, 3.6e6}, // 3.5
		{0.05, 40 * ms, 0.8e6, 1.6e6}, // 1.6
		{0.05, 500 * ms, 80e3, 130e3},
		{2, 500 * ms, 8, 10e3},
	} {
		got := Loses{c.loss, c.rtt}.Carries() * 8
		if got < c.least || got > c.most {
			t.Errorf("%v lost, %v: %d bit/s, want %d to %d", c.loss, c.rtt, got, c.least, c.most)
		}
	}
}

// TestStartup: a long path takes time to fill, a short one none that counts, and a few bytes no longer than they double.
func TestStartup(t *testing.T) {
	for _, c := range []struct {
		bytes, carried float64
		rtt            time.Duration
		least, most    time.Duration
	}{
		{100e6, 12e6, 500 * ms, 3500 * ms, 4500 * ms},
		{100e6, 12e6, 20 * ms, 40 * ms, 80 * ms},
		{100e3, 12e6, 500 * ms, 800 * ms, 1000 * ms},
		{1e3, 12e6, 500 * ms, 0, 0},
		{0, 12e6, 500 * ms, 0, 0},
		{100e6, 12e6, 0, 0, 0},
	} {
		if got := startup(c.bytes, c.carried, c.rtt); got < c.least || got > c.most {
			t.Errorf("%.0f bytes, %v: %v, want %v to %v", c.bytes, c.rtt, got, c.least, c.most)
		}
	}
}

// TestLosesArrives: of many packets some are lost, and some of those again; of a few likely none.
func TestLosesArrives(t *testing.T) {
	for _, c := range []struct {
		loss        float64
		bytes       float64
		least, most time.Duration
	}{
		{0, 1e6, 100 * ms, 100 * ms},
		{0.01, 10e3, 100 * ms, 100 * ms},
		{0.01, 100e3, 200 * ms, 200 * ms},
		{0.05, 256e3, 250 * ms, 300 * ms},
		{1, 1e6, 100 * ms, 100 * ms},
	} {
		if got := (Loses{c.loss, 100 * ms}).Arrives(c.bytes); got < c.least || got > c.most {
			t.Errorf("%v lost of %.0f bytes: %v, want %v to %v", c.loss, c.bytes, got, c.least, c.most)
		}
	}
}
