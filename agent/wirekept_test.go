package agent

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/agent/journal"
	"godwit/agent/record"
	"godwit/internal/need"
	"godwit/migration"
	"godwit/netstate/meter"
	"godwit/netstate/tunnel"
	"godwit/vm"
)

// TestWireSum: what was sent before counts, on paths too that nothing takes now.
func TestWireSum(t *testing.T) {
	before := map[string]int64{"public-public": 1000, "private-public": 50}
	got := wireSum(before, map[string]int64{"public-public": 10, "other": 7}, map[string]int64{"public-public": 110, "other": 7}, 0.5)
	if want := map[string]int64{"public-public": 1050, "private-public": 50}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if before["public-public"] != 1000 {
		t.Error("what was sent before has changed")
	}
	if got := wireSum(nil, nil, nil, 1); got == nil || len(got) > 0 {
		t.Errorf("nothing was sent: %v, want none, and not that it is not known", got)
	}
}

// TestWireBytesByPath: what the meters count has the names that paths have elsewhere, as in metrics, also where uplinks' names would be taken for others.
func TestWireBytesByPath(t *testing.T) {
	need.Root(t)
	up := func(name, addr string) config.Uplink {
		return config.Uplink{Name: name, Address: netip.MustParseAddr(addr), Device: "lo", Carries: "both"}
	}
	n := config.Neighbour{Host: "rome", Uplinks: []config.Uplink{up("b-c", "127.0.1.1"), up("c", "127.0.1.2")}}
	a := bareAgent(t, &config.Config{Host: "paris", Uplinks: []config.Uplink{up("a", "127.0.0.1"), up("a-b", "127.0.0.2")}, Peers: []config.Neighbour{n}})
	a.meters = map[string]*meter.Meter{}
	a.openMeters()
	defer a.closeMeters()
	m := &outgoing{a: a, plan: migration.Plan{From: "paris", To: "rome"}, work: &sourceWork{}}
	want := map[string]int64{}
	for i, p := range a.config.Paths(n) {
		from := net.UDPAddrFromAddrPort(netip.AddrPortFrom(p.Local, 0))
		to, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(p.Remote, 0)))
		if err != nil {
			t.Fatal(err)
		}
		defer to.Close()
		at := to.LocalAddr().(*net.UDPAddr)
		conn, err := net.DialUDP("udp", from, at)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		m.work.memoryTunnels = append(m.work.memoryTunnels, tunnel.Config{Remote: at.AddrPort()})
		if _, err := conn.Write(make([]byte, 100*(i+1))); err != nil {
			t.Fatal(err)
		}
		want[p.Name] = int64(28 + 100*(i+1))
	}
	if got := m.wireBytes().tunnels; len(want) != 4 || !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestWireBytesBesideAnother: a migration whose memory has tunnels of its own is not told to have sent what another sends to the same host meanwhile.
func TestWireBytesBesideAnother(t *testing.T) {
	need.Root(t)
	here, there := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.1.1")
	n := config.Neighbour{Host: "rome", Uplinks: []config.Uplink{{Name: "public", Address: there}}}
	a := bareAgent(t, &config.Config{Host: "paris", Uplinks: []config.Uplink{{Name: "public", Address: here, Device: "lo"}}, Peers: []config.Neighbour{n}})
	a.meters = map[string]*meter.Meter{}
	a.openMeters()
	defer a.closeMeters()
	tunnels, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(there, 0)))
	if err != nil {
		t.Fatal(err)
	}
	defer tunnels.Close()
	lanes, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(there, 0)))
	if err != nil {
		t.Fatal(err)
	}
	defer lanes.Close()
	plan := migration.Plan{ID: "m-00000001", From: "paris", To: "rome", Transfer: "qemu-mptcp"}
	m := &outgoing{a: a, plan: plan, rec: record.New("paris", plan, time.Now()), work: &sourceWork{}}
	end := tunnels.LocalAddr().(*net.UDPAddr)
	m.work.memoryTunnels = []tunnel.Config{{Remote: end.AddrPort()}}
	m.beginWire()
	defer m.work.share.Leave()
	another := a.shares.Join("rome")
	defer another.Leave()
	another.Follow(func() int64 { return 5000 })
	send := func(conn net.Conn, err error, bytes int) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write(make([]byte, bytes)); err != nil {
			t.Fatal(err)
		}
	}
	own, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(here, 0)), end)
	send(own, err, 100)
	others, err := net.DialTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(here, 0)), lanes.Addr().(*net.TCPAddr))
	send(others, err, 5000)
	if got, want := m.wireSince(), map[string]int64{"public-public": 128}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestOneMeterADevice: uplinks of one device share its meter, and none is left when the agent ends.
func TestOneMeterADevice(t *testing.T) {
	need.Root(t)
	open := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	a := bareAgent(t, &config.Config{Host: "paris", Uplinks: []config.Uplink{{Name: "four", Device: "lo"}, {Name: "six", Device: "lo"}}})
	a.meters = map[string]*meter.Meter{}
	before := open()
	a.openMeters()
	if len(a.meters) != 1 {
		t.Errorf("%d meters", len(a.meters))
	}
	a.closeMeters()
	if after := open(); after != before {
		t.Errorf("%d descriptors are open, %d were", after, before)
	}
}

// TestWireTold: often enough, and of a long copy not thousands of times.
func TestWireTold(t *testing.T) {
	begun := time.Unix(1000, 0)
	told, records := wireTold{begun: begun}, 0
	for at := time.Duration(0); at < 10*time.Hour; at += 200 * time.Millisecond {
		last := told.last
		if told.due(begun.Add(at)) {
			records++
		} else if lost := begun.Add(at).Sub(last); lost > max(wireLost, at/wireLostShare) {
			t.Fatalf("after %v nothing was written down for %v", at, lost)
		}
	}
	if records > 250 {
		t.Errorf("%d records", records)
	}
}

// quiet is a machine of which nothing is heard.
type quiet struct{ gone }

func (quiet) Events(context.Context) <-chan vm.Event { return nil }

// TestWireOutlivesTheSource: what a copy had sent counts on for the agent that is started again after
// one that was killed in it, in its progress, in the next try and in that one's end.
func TestWireOutlivesTheSource(t *testing.T) {
	a, _ := served(t)
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Epoch: 2}
	dir := t.TempDir()
	log, err := journal.Create(dir, plan.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close() //nolint:errcheck // the test ends
	m := &outgoing{a: a, plan: plan, state: sourceDoing(t, migration.CopyMemory), log: log, work: &sourceWork{}, rec: record.New("paris", plan, time.Now())}
	m.beginWire()
	m.work.wireBefore = map[string]int64{"public-public": 70e6} // as if meters had counted it
	m.keepWire()

	var j sourceJournal
	if err := journal.Read(dir, plan.ID, &j); err != nil {
		t.Fatal(err)
	}
	if j.State.Doing() != migration.CopyMemory || j.Plan.ID != plan.ID {
		t.Errorf("the journal says %+v", j)
	}
	again := &outgoing{a: a, plan: plan, state: j.State, log: log, work: &sourceWork{}, rec: record.New("paris", plan, time.Now()), kept: j.Report, found: true}
	again.rec.Recall(j.Report)
	for _, moment := range []string{"found again", "begun again"} {
		if rep := again.rec.Snapshot(); rep.WireBytes["public-public"] != 70e6 || rep.Guest != "web" || rep.Rounds != 0 {
			t.Errorf("%s: the report is %+v", moment, rep)
		}
		if got := again.wireSince(); got["public-public"] != 70e6 {
			t.Errorf("%s: sent so far %v", moment, got)
		}
		again.beginWire()
		again.countWire()
		if got := again.rec.Snapshot().WireBytes; got["public-public"] != 70e6 {
			t.Errorf("%s: counted %v", moment, got)
		}
		again.guest = &Guest{Machine: quiet{gone{done: make(chan struct{})}}}
		again.newEpoch(migration.Source{Course: migration.Forward, Epoch: 3, Tries: 1})
	}
}

// TestLimitOutlivesTheSource: a migration that was limited as it copied is so for the agent that is started again after
// one that was killed in it, also where what was sent is not written down again yet.
func TestLimitOutlivesTheSource(t *testing.T) {
	a := startedAgain(t)
	rememberedGuest(t, a)
	j := journalled("m-00000001", "berlin", sourceDoing(t, migration.CopyMemory))
	j.Plan.Bandwidth = 80e6
	path := journalOf(t, a, j.Plan.ID, j)
	log, err := journal.Open(filepath.Dir(path), j.Plan.ID, &j)
	if err != nil {
		t.Fatal(err)
	}
	killed := &outgoing{a: a, plan: j.Plan, state: j.State, log: log, work: &sourceWork{}, rec: record.New("rome", j.Plan, a.clock()), limited: j.Plan.Bandwidth}
	killed.beginWire()
	for _, bits := range []int64{8e6, 0, 16e6} {
		killed.bandwidth.Set(bits)
		killed.keepWire()
		if err := journal.Read(filepath.Dir(path), j.Plan.ID, &j); err != nil || j.Plan.Bandwidth != bits {
			t.Errorf("limited to %d bit/s; the journal has %d: %v", bits, j.Plan.Bandwidth, err)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	if got := killed.carried(config.Neighbour{}); got != 16e6 {
		t.Errorf("its next try is foreseen by %d bit/s", got)
	}
}
