package wan

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"godwit/internal/need"
	"godwit/netstate/netns"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
)

func TestDisciplines(t *testing.T) {
	ms := time.Millisecond
	for _, c := range []struct {
		name    string
		link    Link
		carries bool
		want    string
	}{
		{"rate and delay", Link{Rate: 100e6, Delay: 10 * ms}, true,
			"qdisc replace dev up0 root handle 1: tbf rate 100000000bit burst 10000 limit 250000\n" +
				"qdisc replace dev up0 parent 1:1 handle 10: netem limit 250 delay 10000us 0us rate 100000000000bit"},
		{"slow, jitter, loss", Link{Rate: 1e6, Delay: 10 * ms, Jitter: 2 * ms, Loss: 0.01, MTU: 1400}, true,
			"qdisc replace dev up0 root handle 1: tbf rate 1000000bit burst 2800 limit 65536\n" +
				"qdisc replace dev up0 parent 1:1 handle 10: netem limit 48 delay 10000us 2000us rate 100000000000bit loss 1.000000%"},
		{"cut", Link{}, false,
			"qdisc replace dev up0 root handle 1: tbf rate 100000000000bit burst 32000 limit 65536\n" +
				"qdisc replace dev up0 parent 1:1 handle 10: netem limit 179001 delay 0us 0us rate 100000000000bit loss 100%"},
	} {
		var lines []string
		for _, args := range disciplines("up0", c.link, c.carries) {
			lines = append(lines, strings.Join(args, " "))
		}
		if got := strings.Join(lines, "\n"); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
}

func TestTally(t *testing.T) {
	var sum tally
	add := func(packets, drops uint32, link Link, carries bool) {
		sum.add(read([]netlink.Qdisc{
			&netlink.Tbf{QdiscAttrs: netlink.QdiscAttrs{Statistics: &netlink.QdiscStatistics{
				Basic: &netlink.GnetStatsBasic{Bytes: 1514 * uint64(packets), Packets: packets}, Queue: &netlink.GnetStatsQueue{Backlog: 7, Qlen: 2}}}},
			&netlink.Netem{QdiscAttrs: netlink.QdiscAttrs{Statistics: &netlink.QdiscStatistics{
				Basic: &netlink.GnetStatsBasic{}, Queue: &netlink.GnetStatsQueue{Drops: drops}}}},
		}), link, carries)
	}
	add(1, 3, Link{}, true)
	add(2, 7, Link{Loss: 0.1}, true)
	want := Flow{Packets: 2, Bytes: 3000, QueueDrop: 3, LossDrop: 4, Waiting: 7}
	if sum.sum != want {
		t.Errorf("%+v, want %+v", sum.sum, want)
	}
	sum.emptied() // two were on their way
	add(0, 5, Link{Loss: 0.1}, false)
	want.CutDrop = 7
	if sum.sum != want {
		t.Errorf("after a cut: %+v, want %+v", sum.sum, want)
	}
}

// TestProbeAgrees: what the probe says is what the kernel does with a whole link, and a link
// is made by netem wherever it can be.
func TestProbeAgrees(t *testing.T) {
	need.Root(t)
	w := newWorld(t, "", Link{Delay: time.Millisecond})
	want := "user"
	if HaveNetem() {
		want = "netem"
	}
	if w.Kind() != want {
		t.Errorf("kind %s, want %s", w.Kind(), want)
	}
	if _, err := os.Stat("/sys/module/sch_netem"); err == nil && want != "netem" {
		t.Error("this kernel has netem, and the probe does not see it")
	}
	if _, err := StartNetem(t.Context(), End{w.a, "n0"}, End{w.b, "n0"}, Link{}); (err == nil) != HaveNetem() {
		t.Errorf("start by netem: %v, but the probe says %v", err, HaveNetem())
	}
}

// TestHalfAChange: where the second end does not take a change, the first has it no more, nor has the second a part of it.
func TestHalfAChange(t *testing.T) {
	need.Root(t)
	a, b := End{fmt.Sprintf("t-wan-%d-half-a", os.Getpid()), "up0"}, End{fmt.Sprintf("t-wan-%d-half-b", os.Getpid()), "s0u0"}
	for _, end := range []End{a, b} {
		if err := netns.Create(end.Namespace); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = netns.Delete(end.Namespace) })
	}
	before := Link{Rate: 10e6, Delay: time.Millisecond}
	last, refuses := map[string]string{}, ""
	n := &netemLink{ends: [2]End{a, b}, link: before, tc: func(args ...string) error {
		if line := strings.Join(args, " "); refuses == "" || !strings.Contains(line, refuses) {
			last[args[3]+" "+args[4]] = line
			return nil
		}
		return errors.New("no more memory")
	}}
	if err := errors.Join(n.make(), n.Set(before)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	stood := maps.Clone(last)
	refuses = "dev s0u0 parent 1:1 handle 10: netem limit 63 "
	err := n.Set(Link{Rate: 20e6, Delay: 9 * time.Millisecond, MTU: 1400})
	if err == nil || err.Error() != "no more memory" {
		t.Errorf("%v", err)
	}
	if diff := cmp.Diff(stood, last); diff != "" || n.link != before {
		t.Errorf("%+v: (-before +after) %s", n.link, diff)
	}
	for _, end := range n.ends {
		_ = netns.Do(end.Namespace, func() error {
			if dev, err := netlink.LinkByName(end.Device); err != nil || dev.Attrs().MTU != 1500 {
				t.Errorf("%s: %v, %v", end.Device, dev, err)
			}
			return nil
		})
	}
}
