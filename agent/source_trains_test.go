package agent

import (
	"math"
	"net/netip"
	"testing"
	"time"

	"godwit/agent/peer"
	"godwit/agent/probe"
	"godwit/agent/ways"
	"godwit/policy"
)

// TestTrain: a path is tried with no more than it carries at a small part of its rate, and not at all where that would tell nothing.
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
	if got := m.lossyPaths(n); got.Share != 0 || got.rate != 100e6 || got.note != "" || got.RTT != 20*time.Millisecond {
		t.Errorf("not tried: %+v", got)
	}
	told := make(chan probe.Train, 1)
	told <- probe.Train{Sent: 100, Answered: 81, RTT: 20 * time.Millisecond}
	m.work.trains = map[[2]netip.Addr]<-chan probe.Train{ways.Ends(m.paths(n)[0]): told}
	if got := m.lossyPaths(n); math.Abs(got.Share-0.1) > 0.001 || got.rate > 90.1e6 || got.rate == 0 || got.note == "" && got.rate < 89.9e6 {
		t.Errorf("a tenth is lost each way: %+v", got)
	}
	note := lossNote(peer.Path{Name: "a-b", Rate: 100e6}, policy.Loses{Share: 0.05}, "cubic", 1.26e6)
	if want := "path a-b lost 5.0 % of small packets: a connection by cubic, which takes that for congestion, is foreseen to carry 1.3 of 100 Mbit/s"; note != want {
		t.Errorf("%q, want %q", note, want)
	}
}

// TestDiskWritesSince: how often a guest writes is of the time between two looks; of one alone, or of a QEMU that was started anew, nothing is.
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
