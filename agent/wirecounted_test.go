package agent

import (
	"errors"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/agent/journal"
	"godwit/agent/peer"
	"godwit/agent/record"
	"godwit/agent/talk"
	"godwit/agent/uplinks"
	"godwit/internal/need"
	"godwit/migration"
	"godwit/netstate/tunnel"
)

// meteredAgent counts what goes over its one uplink, and knows a host that has that address.
func meteredAgent(t *testing.T) (a *Agent, there netip.Addr) {
	t.Helper()
	need.Root(t)
	here, there := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.1.1")
	n := config.Neighbour{Host: "rome", Uplinks: []config.Uplink{{Name: "public", Address: there}}}
	a = bareAgent(t, &config.Config{Host: "paris", Uplinks: []config.Uplink{{Name: "public", Address: here, Device: "lo"}}, Peers: []config.Neighbour{n}})
	a.meters = uplinks.OpenMeters(a.config.Uplinks, func(msg string, args ...any) { t.Errorf("%s %v", msg, args) })
	t.Cleanup(a.meters.Close)
	return a, there
}

// TestWireOfItsTunnels: a migration whose memory has tunnels of its own is told to have sent what went by these, and
// not what another sends to the same host meanwhile.
func TestWireOfItsTunnels(t *testing.T) {
	a, there := meteredAgent(t)
	own, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(there, 0)))
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	others, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(there, 0)))
	if err != nil {
		t.Fatal(err)
	}
	defer others.Close()
	plan := migration.Plan{ID: "m-00000001", From: "paris", To: "rome", Transfer: "qemu-mptcp"}
	m := &outgoing{a: a, plan: plan, rec: record.New("paris", plan, time.Now()), work: &sourceWork{}}
	m.work.memoryTunnels = []tunnel.Config{{Remote: own.LocalAddr().(*net.UDPAddr).AddrPort()}}
	m.beginWire()
	defer m.work.wire.Leave()
	another := a.shares.Join("rome")
	defer another.Leave()
	another.Follow(func() int64 { return 5000 })
	for _, to := range []struct {
		at    net.Addr
		bytes int
	}{{own.LocalAddr(), 100}, {others.Addr(), 5000}} {
		conn, err := net.Dial(to.at.Network(), to.at.String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(make([]byte, to.bytes)); err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
	}
	if got, want := m.wireSince(), map[string]int64{"public-public": 128}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestDoubtCounts: a migration in doubt is told to have sent all that it has, also after its guest was stopped, and by
// the next agent, too.
func TestDoubtCounts(t *testing.T) {
	a, there := meteredAgent(t)
	memory, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(there, 0)))
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	const most = 5000
	sends := func() {
		conn, err := net.Dial("tcp", memory.Addr().String())
		if err == nil {
			_, err = conn.Write(make([]byte, most))
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
	}
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Epoch: 2}
	log, err := journal.Create(t.TempDir(), plan.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close() //nolint:errcheck // the test ends
	m := &outgoing{a: a, plan: plan, state: sourceDoing(t, migration.AskSuspend), log: log, work: &sourceWork{}, rec: record.New("paris", plan, time.Now())}
	m.beginWire()
	defer m.work.wire.Leave()
	for _, in := range []migration.Input{{Kind: migration.Done}, {Kind: migration.Done}, {Kind: migration.Done}, {Kind: migration.NoAnswer, Effect: migration.Release}} {
		sends()
		if _, err := m.step(in); err != nil {
			t.Fatal(err)
		}
	}
	again := record.New("paris", plan, time.Now())
	again.Recall(m.kept)
	for who, rep := range map[string]record.Report{"the agent": m.rec.Snapshot(), "the next one": again.Snapshot()} {
		if sent := rep.WireBytes["public-public"]; sent < 4*most {
			t.Errorf("%s: %s, %d bytes, and %d were sent", who, m.state.Doing(), sent, 4*most)
		}
	}
	sends()
	m.link = linked(t, "paris", "rome", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		peer.Answer(w, talk.ReleaseAnswer{State: "waiting", Vanished: "its QEMU is gone"}, nil)
	}))
	if err := m.askRelease(t.Context(), &talk.ReleaseAnswer{}, nil); !errors.Is(err, errSilent) {
		t.Error(err)
	}
	if rep := m.rec.Snapshot(); rep.Outcome != migration.InDoubt || rep.WireBytes["public-public"] < 5*most {
		t.Errorf("as it is asked on: %s, %d bytes, and %d were sent", rep.Outcome, rep.WireBytes["public-public"], 5*most)
	}
}

// TestUncountedIsKept: that some of what was sent is not counted is in the report, over the next try and an agent's end.
func TestUncountedIsKept(t *testing.T) {
	here, there := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.1.1")
	n := config.Neighbour{Host: "rome", Uplinks: []config.Uplink{{Name: "public", Address: there, Carries: "both"}}}
	a := bareAgent(t, &config.Config{Host: "paris", Uplinks: []config.Uplink{{Name: "public", Address: here, Carries: "both"}}, Peers: []config.Neighbour{n}})
	a.meters = uplinks.OpenMeters(a.config.Uplinks, a.log.Warn)
	defer a.meters.Close()
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome"}
	m := &outgoing{a: a, plan: plan, rec: record.New("paris", plan, time.Now()), work: &sourceWork{}}
	want := map[string]string{"other": "an earlier try", "public-public": "uplink public: the configuration names no device of it"}
	m.rec.Edit(func(r *record.Report) { r.WireUncounted = map[string]string{"other": want["other"]} })
	m.beginWire()
	defer m.work.wire.Leave()
	m.countWire()
	again := record.New("paris", plan, time.Now())
	again.Recall(m.sentSoFar())
	for _, rep := range []record.Report{m.rec.Snapshot(), again.Snapshot()} {
		if !maps.Equal(rep.WireUncounted, want) {
			t.Errorf("%q, want %q", rep.WireUncounted, want)
		}
	}
}
