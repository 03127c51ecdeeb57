package traffic

import (
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"godwit/internal/need"
	"godwit/netstate/mptcp"
	"godwit/netstate/netns"
)

func TestIperf3Args(t *testing.T) {
	to := netip.MustParseAddr("10.1.1.10")
	for _, c := range []struct {
		f    Flow
		want string
	}{
		{Flow{Target: to}, "-c 10.1.1.10 -p 5201 -t 86400 "},
		{Flow{Target: to, Port: 5203}, " -p 5203 "},
		{Flow{Target: to, Connections: 5, Rate: 400_000}, " -P 5 -b 80000 -l 1000"},
		{Flow{Target: to, Rate: 8000}, " -b 8000 -l 512"},
		{Flow{Target: to, Rate: 1_000_000_000}, " -b 1000000000 -l 131072"},
	} {
		c.f.Kind = Iperf3
		if got := " " + strings.Join(iperf3Args(c.f), " ") + " "; !strings.Contains(got, c.want) {
			t.Errorf("%+v: %s, without %s", c.f, got, c.want)
		}
	}
}

// TestLooksDelayedOnce: a reading that waited for a processor is no reason to look away for ten times as long; one that
// takes long each time is.
func TestLooksDelayedOnce(t *testing.T) {
	const quick, slow = int64(time.Millisecond), int64(120 * time.Millisecond)
	var o others
	at := int64(0)
	for i, c := range []struct{ took, away int64 }{
		{quick, 10 * quick}, {slow, 10 * quick}, {quick, 10 * quick}, {slow, 10 * quick},
		{slow, 10 * quick}, {slow, 10 * quick}, {slow, 10 * quick}, {slow, 10 * slow}, {quick, 10 * quick},
	} {
		at += int64(time.Second)
		if o.rest(at, c.took); o.next != at+c.away {
			t.Errorf("look %d: the next after %v, want %v", i, time.Duration(o.next-at), time.Duration(c.away))
		}
	}
}

// TestEachOfOthersMoves: of iperf3's connections each is told where it has got to, in the end and in each sample, by which
// it counts as moved where its guest moved on; and that for control is none of them.
func TestEachOfOthersMoves(t *testing.T) {
	at := func(port uint16, remote string, token uint32) mptcp.Connection {
		s := mptcp.Subflow{Local: netip.AddrPortFrom(netip.MustParseAddr("10.9.1.2"), port), Remote: netip.AddrPortFrom(netip.MustParseAddr(remote), 5201), State: mptcp.StateEstablished}
		return mptcp.Connection{Token: token, Local: s.Local, Subflows: []mptcp.Subflow{s}}
	}
	old, next := "10.1.1.10", "10.2.1.10"
	o := others{found: []mptcp.Connection{at(1, old, 1), at(2, next, 2), at(3, old, 3)}}
	if got := o.forData(); len(got) != 0 {
		t.Errorf("not told which: %v", got)
	}
	o.data = map[uint16]bool{2: true, 3: true}
	o.heard = map[string]*waits{"3": {last: 5}, "2": {last: 4}}
	got := o.forData()
	if len(got) != 2 || got[0].Token != 3 || got[1].Token != 2 {
		t.Fatalf("for data: %v", got)
	}
	p := &program{Flow: Flow{Target: netip.MustParseAddr(old)}, tally: newTally(now())}
	for i, moved := range []bool{false, true} {
		if p.left(everywhere(got[i:i+1])) != moved {
			t.Errorf("connection %d moved: %v", got[i].Token, !moved)
		}
	}
	first, second := netip.MustParseAddr(old), netip.MustParseAddr(next)
	p.others = o
	if got := p.sample(now()).Remotes; len(got) != 2 || got[first] != 1 || got[second] != 1 {
		t.Errorf("a sample has %v", got)
	}
	p.others.data = nil
	if p.Connections = 2; len(p.sample(now()).Remotes) != 0 {
		t.Errorf("not told which, and not all are at one: %v", p.sample(now()).Remotes)
	}
	p.others.found = []mptcp.Connection{at(1, next, 1), at(2, next, 2), at(3, next, 3)}
	if got := p.sample(now()).Remotes; len(got) != 1 || got[second] != 2 {
		t.Errorf("not told which, and all are at one: %v", got)
	}
}

// TestOthers: what iperf3's connections do counts when all of them do it.
func TestOthers(t *testing.T) {
	sub := func(remote string, state mptcp.State) mptcp.Subflow {
		return mptcp.Subflow{Remote: netip.AddrPortFrom(netip.MustParseAddr(remote), 5201), State: state}
	}
	old, next := "10.1.1.10", "10.2.1.10"
	found := []mptcp.Connection{
		{Subflows: []mptcp.Subflow{sub(old, mptcp.StateClose), sub(next, mptcp.StateEstablished), sub(next, mptcp.StateEstablished)}},
		{Subflows: []mptcp.Subflow{sub(old, mptcp.StateEstablished), sub(next, mptcp.StateEstablished)}},
	}
	if got := everywhere(found); !slices.Equal(got, []netip.Addr{netip.MustParseAddr(next)}) {
		t.Errorf("all are on %v", got)
	}
	if got := everywhere(nil); len(got) != 0 {
		t.Errorf("none are on %v", got)
	}
	if got := subflowsOf(found); len(got) != 5 || got[0].Established || !got[1].Established || got[4].Connection != 1 {
		t.Errorf("%+v", got)
	}
	p := &program{Flow: Flow{Connections: 2}}
	if p.speaksMPTCP(found) || !p.speaksMPTCP(append(found, mptcp.Connection{})) {
		t.Error("two for data and one for control are three")
	}
}

// TestControlOfIperf3: its connection for control is none that anybody waits for, also where something of it was
// acknowledged.
func TestControlOfIperf3(t *testing.T) {
	to := netip.MustParseAddrPort("10.1.1.10:5201")
	from := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr("10.9.1.2"), port) }
	speaks := func(token uint32, port uint16, acked uint64) mptcp.Connection {
		return mptcp.Connection{Token: token, Local: from(port), Remote: to, Subflows: []mptcp.Subflow{{Local: from(port), Figures: mptcp.Figures{BytesAcked: acked}}}}
	}
	plain := func(port uint16, acked uint64) mptcp.Socket {
		return mptcp.Socket{Local: from(port), Remote: to, Figures: mptcp.Figures{BytesAcked: acked}}
	}
	for name, list := range map[string]func(control, data uint64) ([]mptcp.Connection, []mptcp.Socket){
		"mptcp": func(control, data uint64) ([]mptcp.Connection, []mptcp.Socket) {
			return []mptcp.Connection{speaks(1, 40000, control), speaks(2, 40002, data), speaks(3, 40004, data)}, nil
		},
		"tcp": func(control, data uint64) ([]mptcp.Connection, []mptcp.Socket) {
			return nil, []mptcp.Socket{plain(40000, control), plain(40002, data), plain(40004, data)}
		},
		"mptcp that the kernel tells little of": func(control, data uint64) ([]mptcp.Connection, []mptcp.Socket) {
			all := []mptcp.Connection{speaks(1, 40000, control), speaks(2, 40002, data), speaks(3, 40004, data)}
			for i := range all {
				all[i].Local = netip.AddrPort{}
			}
			return all, nil
		},
	} {
		var o others
		for _, line := range []string{
			"Connecting to host 10.1.1.10, port 5201\n", "[  5] local 10.9.1.2 port 40002 connected to 10.1.1.10 port 5201\n",
			"[  7] local 10.9.1.2 port 40004 connected to 10.1.1.10 port 5201\n", "[ ID] Interval           Transfer     Bitrate         Retr  Cwnd\n",
		} {
			o.told(line)
		}
		for at := range int64(20) {
			connections, sockets := list(200+uint64(min(at, 5)), 1000*uint64(at))
			o.take(connections, sockets, to, 100*(at+1), 2)
		}
		if wait, _ := o.longest(2000); len(o.heard) != 2 || wait != 0 {
			t.Errorf("%s: %d connections are waited for, the longest for %d", name, len(o.heard), wait)
		}
	}
}

// iperf3Server starts one in a namespace of its own.
func iperf3Server(t *testing.T) (name string) {
	t.Helper()
	need.Program(t, "iperf3")
	name = namespace(t)
	server := exec.Command("iperf3", "-s")
	server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := netns.Start(name, server); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	listens(t, name, 5201)
	return name
}

// TestGapOfIperf3: while nothing gets through its connections wait, also at a rate that its
// sockets have room for.
func TestGapOfIperf3(t *testing.T) {
	need.Lab(t)
	name := iperf3Server(t)
	c := client(t, name)
	begin(t, c, Flow{Name: "x", Kind: Iperf3, Rate: 2e6, Connections: 2})
	stood := stoodStill(t)
	time.Sleep(time.Second)
	before := now()
	loopbackIs(t, name, netlink.LinkSetDown)
	time.Sleep(time.Second)
	loopbackIs(t, name, netlink.LinkSetUp)
	time.Sleep(2 * time.Second)
	r := end(t, c, "x")
	if gap, ok := r.Gap(r.Start+5e8, before-1e8); !ok || gap > 300*time.Millisecond+busy+stood() {
		t.Errorf("gap before %v, %v", gap, ok)
	}
	if gap, ok := r.Gap(before, r.End); !ok || gap < 900*time.Millisecond || gap > 2*time.Second+busy+stood() {
		t.Errorf("gap %v, %v; the way was cut for 1 s", gap, ok)
	}
	if !r.Survived || len(r.Connections) != 2 || len(r.Connections[1].Waits) == 0 {
		t.Errorf("survived %v, %d connections: %+v", r.Survived, len(r.Connections), r.Connections)
	}
}

// TestIperf3OfADeadWay: what its sockets still take is nothing that the guest has.
func TestIperf3OfADeadWay(t *testing.T) {
	need.Lab(t)
	name := iperf3Server(t)
	c := client(t, name)
	begin(t, c, Flow{Name: "x", Kind: Iperf3, Rate: 100e3, Connections: 2})
	time.Sleep(time.Second)
	loopbackIs(t, name, netlink.LinkSetDown)
	time.Sleep(2 * time.Second)
	r := end(t, c, "x")
	for _, one := range r.Connections {
		if r.Survived || one.Survived || one.Last > r.End-int64(time.Second) {
			t.Errorf("it survived, and nobody is there: %v, last %v before the end", one.Survived, time.Duration(r.End-one.Last))
		}
	}
}

// TestFreshConnections: one of several that stands still is not made good by the others.
func TestFreshConnections(t *testing.T) {
	for _, c := range []struct {
		last     []int64
		of       int
		progress int64
		want     bool
	}{
		{[]int64{20, 30}, 2, 0, true},
		{[]int64{20, 5}, 2, 30, false},
		{[]int64{20}, 2, 30, false},
		{[]int64{20, 30, 5}, 2, 0, true}, // that for control had something to say once, and iperf3 did not tell which it is
		{nil, 2, 30, true},
		{nil, 2, 5, false},
	} {
		o := others{heard: map[string]*waits{}}
		for i, at := range c.last {
			o.heard[string(rune('a'+i))] = &waits{last: at}
		}
		if got := o.fresh(10, c.of, c.progress); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	if got := blockEvery(Flow{Rate: 16000, Connections: 10}); got != 2560*int64(time.Millisecond) {
		t.Errorf("a block every %v", time.Duration(got))
	}
}

func loopbackIs(t *testing.T, name string, set func(netlink.Link) error) {
	t.Helper()
	err := netns.Do(name, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return set(lo)
	})
	if err != nil {
		t.Fatal(err)
	}
}
