package traffic

import (
	"testing"
	"time"
)

func TestWindows(t *testing.T) {
	const m = int64(time.Millisecond)
	r := Result{Start: 0, End: 1000 * m,
		Connections: []Connection{
			{Begun: 1, MinWait: 3 * m, Waits: []Wait{{10 * m, 5 * m}, {100 * m, 50 * m}, {500 * m, 10 * m}}},
			{Begun: 1, MinWait: 3 * m, Waits: []Wait{{120 * m, 7 * m}, {700 * m, 300 * m}}},
		},
		Buckets: []uint32{1000, 0, 2000},
		RTTs:    []RTT{{10 * m, 5}, {20 * m, 100}, {30 * m, 7}},
	}
	for _, test := range []struct{ from, to, want int64 }{
		{0, 1000, 300}, {0, 100, 5}, {0, 101, 50}, {149, 200, 50}, {150, 200, 3}, {505, 506, 10}, {999, 2000, 300},
	} {
		if got, ok := r.Gap(test.from*m, test.to*m); !ok || int64(got) != test.want*m {
			t.Errorf("gap in [%d, %d) ms: %v, %v; want %d ms", test.from, test.to, got, ok, test.want)
		}
	}
	if _, ok := r.Gap(1000*m, 1100*m); ok {
		t.Error("a gap after the end is known")
	}
	for _, test := range []struct {
		from, to int64
		want     float64
	}{
		{0, 10, 0.8}, {0, 30, 0.8}, {5, 15, 0.4}, {20, 30, 1.6}, {30, 40, 0},
	} {
		if got, ok := r.Mbps(test.from*m, test.to*m); !ok || got < test.want-1e-9 || got > test.want+1e-9 {
			t.Errorf("Mbit/s in [%d, %d) ms: %v, %v; want %v", test.from, test.to, got, ok, test.want)
		}
	}
	if rtt, ok := r.RTT(0, 1000*m); !ok || rtt != 7*time.Microsecond {
		t.Errorf("median round trip %v, %v", rtt, ok)
	}
	if _, ok := r.RTT(100*m, 200*m); ok {
		t.Error("a round trip in an empty window")
	}
}

// TestGapBeforeTheFirstRecord: nothing is known of a flow's waits before a record came; a shortest wait
// would look as if it had gone on all the time.
func TestGapBeforeTheFirstRecord(t *testing.T) {
	w := newWaits(1)
	w.arrive(500e6)
	w.arrive(600e6)
	never := newWaits(1)
	never.end(1000e6)
	var r Result
	r.End = 1000e6
	for _, w := range []*waits{never, w} {
		var c Connection
		w.describe(&c)
		r.Connections = append(r.Connections, c)
	}
	if gap, ok := r.Gap(100e6, 400e6); ok {
		t.Errorf("before the first record: %v", gap)
	}
	if gap, ok := r.Gap(100e6, 501e6); !ok || gap != 100*time.Millisecond {
		t.Errorf("of a window that the first record came in: %v, %v", gap, ok)
	}
	if gap, ok := r.Gap(700e6, 800e6); !ok || gap != shortestKept {
		t.Errorf("of a window without a wait: %v, %v", gap, ok)
	}
}

// TestRateAfterHours: what comes after the first two hours counts too.
func TestRateAfterHours(t *testing.T) {
	const second = int64(time.Second)
	tally := newTally(100)
	for at := int64(0); at < 30*3600; at++ {
		tally.buckets.add(100+at*second, 1_000_000)
	}
	r := Result{End: 100 + 30*3600*second}
	tally.result(&r)
	if len(r.Buckets) > mostBuckets {
		t.Errorf("%d buckets", len(r.Buckets))
	}
	for _, from := range []int64{0, 3600, 7190, 7300, 29 * 3600} {
		if got, ok := r.Mbps(100+from*second, 100+(from+10)*second); !ok || got < 7.1 || got > 8.9 {
			t.Errorf("after %d s: %v Mbit/s, %v", from, got, ok)
		}
	}
}

func TestWaitsForgetTheShortest(t *testing.T) {
	w := newWaits(mostWaits) // the smallest memory
	at := int64(1)
	for i := range 5 * fewestWaits {
		if i == 77 {
			at += int64(time.Second)
		}
		at += int64(5 * time.Millisecond)
		w.arrive(at)
	}
	if len(w.all) >= fewestWaits || w.min <= int64(5*time.Millisecond) {
		t.Errorf("%d waits kept, from %v", len(w.all), time.Duration(w.min))
	}
	found := false
	for _, x := range w.all {
		found = found || x.Length >= int64(time.Second)
	}
	if !found {
		t.Error("the longest wait was forgotten")
	}
}

func TestIperf3Lines(t *testing.T) {
	tests := []struct {
		line        string
		connections int
		bytes, sent int64
		ok          bool
	}{
		{"[  5]   0.00-0.10   sec   128 KBytes  10.5 Mbits/sec    3   93.0 KBytes       \n", 1, 128 << 10, 3, true},
		{"[  5]   0.10-0.20   sec  0.00 Bytes  0.00 Mbits/sec    1   1.41 KBytes       \n", 1, 0, 1, true},
		{"[  5]   0.20-0.30   sec  1.25 MBytes   105 Mbits/sec\n", 1, 1310720, 0, true},
		{"[SUM]   0.00-0.10   sec  1.50 MBytes   126 Mbits/sec    2\n", 4, 1572864, 2, true},
		{"[  5]   0.00-0.10   sec   128 KBytes  10.5 Mbits/sec    3   93.0 KBytes\n", 4, 0, 0, false},
		{"[  5]   0.00-10.00  sec   128 MBytes  10.5 Mbits/sec    3             sender\n", 1, 0, 0, false},
		{"[  5]   0.00-0.60   sec   128 KBytes  1.75 Mbits/sec                  receiver\n", 1, 0, 0, false},
		{"[  5]   4.10-5.40   sec   128 KBytes  0.81 Mbits/sec    2   43.8 KBytes\n", 1, 128 << 10, 2, true},        // it had no processor for a while
		{"[  5]   4.10-4.20   sec   128 KBytes  10.5 Mbits/sec  4294967293   43.8 KBytes\n", 1, 128 << 10, 0, true}, // fewer in all than before
		{"Connecting to host 10.1.1.10, port 5201\n", 1, 0, 0, false},
	}
	for _, test := range tests {
		bytes, sent, ok := parseInterval(test.line, test.connections)
		if bytes != test.bytes || sent != test.sent || ok != test.ok {
			t.Errorf("%q: %d, %d, %v", test.line, bytes, sent, ok)
		}
	}
}
