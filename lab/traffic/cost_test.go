package traffic

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// processorTime of a process, all threads, in clock ticks of 10 ms (proc(5)).
func processorTime(t testing.TB, pid int) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	var user, system int64
	fmt.Sscan(fields[11], &user)
	fmt.Sscan(fields[12], &system)
	return time.Duration(user+system) * 10 * time.Millisecond
}

// A client at 350 Mbit/s must leave the machine to the guests.
func TestFullRateIsCheap(t *testing.T) {
	for _, kind := range []string{Download, Upload} {
		name, _ := guest(t)
		c := client(t, name)
		begin(t, c, Flow{Name: "x", Kind: kind, MPTCP: true, Rate: 350e6})
		pid := c.p.cmd.Process.Pid
		begun, used := time.Now(), processorTime(t, pid)
		from := now()
		time.Sleep(2 * time.Second)
		to := now()
		share := float64(processorTime(t, pid)-used) / float64(time.Since(begun))
		r := end(t, c, "x")
		mbps, _ := r.Mbps(from, to)
		rtt, _ := r.RTT(from, to)
		gap, _ := r.Gap(from, to)
		t.Logf("%s: %.0f Mbit/s with %.0f %% of a core, round trip %v, gap %v", kind, mbps, share*100, rtt, gap)
		if share > 0.4 { // aim: 0.15; on loopback a sender also pays for the receiver's kernel work
			t.Errorf("%s: %.0f %% of a core", kind, share*100)
		}
	}
}
