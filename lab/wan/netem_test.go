package wan

import (
	"strings"
	"testing"
	"time"

	"godwit/internal/need"

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

func TestNetemFlow(t *testing.T) {
	list := []netlink.Qdisc{
		&netlink.Tbf{QdiscAttrs: netlink.QdiscAttrs{Statistics: &netlink.QdiscStatistics{
			Basic: &netlink.GnetStatsBasic{Bytes: 1514, Packets: 1}, Queue: &netlink.GnetStatsQueue{Backlog: 7}}}},
		&netlink.Netem{QdiscAttrs: netlink.QdiscAttrs{Statistics: &netlink.QdiscStatistics{
			Basic: &netlink.GnetStatsBasic{}, Queue: &netlink.GnetStatsQueue{Drops: 3}}}},
	}
	base := Flow{Packets: 1, Bytes: 1500, Waiting: 7}
	for _, c := range []struct {
		link    Link
		carries bool
		drop    func(*Flow)
	}{
		{Link{}, true, func(f *Flow) { f.QueueDrop = 3 }},
		{Link{Loss: 0.1}, true, func(f *Flow) { f.LossDrop = 3 }},
		{Link{Loss: 0.1}, false, func(f *Flow) { f.CutDrop = 3 }},
	} {
		want := base
		c.drop(&want)
		n := &netemLink{link: c.link}
		if got := n.flow(list, c.carries); got != want {
			t.Errorf("%+v: %+v, want %+v", c.link, got, want)
		}
	}
}

// TestProbeAgrees: what the probe says is what the kernel does with a whole link.
func TestProbeAgrees(t *testing.T) {
	need.Root(t)
	w := newWorld(t, Link{Delay: time.Millisecond})
	want := "user"
	if HaveNetem() {
		want = "netem"
	}
	if w.Kind() != want {
		t.Errorf("kind %s, want %s", w.Kind(), want)
	}
	if _, err := StartNetem(t.Context(), End{w.a, "n0"}, End{w.b, "n0"}, Link{}); (err == nil) != HaveNetem() {
		t.Errorf("start by netem: %v, but the probe says %v", err, HaveNetem())
	}
}
