package agent

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"godwit/agent/agenttest"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/disks"
	"godwit/agent/ends"
	"godwit/agent/talk"
	"godwit/agent/ways"
	"godwit/migration"
)

// reflectAfter answers each datagram at an address after so long, until the test ends.
func reflectAfter(t *testing.T, at netip.AddrPort, after time.Duration) {
	t.Helper()
	reflectBy(t, at, func(_ netip.AddrPort, answer func()) { time.AfterFunc(after, answer) })
}

// reflectBy has each answer to a datagram at an address be given as by says, which knows from where that came, until
// the test ends.
func reflectBy(t *testing.T, at netip.AddrPort, by func(from netip.AddrPort, answer func())) {
	t.Helper()
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		for buf := make([]byte, 16<<10); ; {
			n, from, err := conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			said := slices.Clone(buf[:n])
			by(from, func() { conn.WriteToUDPAddrPort(said, from) }) //nolint:errcheck // it may be closed
		}
	}()
}

// twoWays is a migration between hosts with an uplink for guests and one for migrations each, whose round trips are as
// long as that.
func twoWays(t *testing.T, transfer string, guests, memory time.Duration) (*outgoing, config.Neighbour) {
	t.Helper()
	uplinks := func(public, private string) []config.Uplink {
		return []config.Uplink{
			{Name: "public", Address: netip.MustParseAddr(public), Carries: "guest", Rate: 100e6},
			{Name: "private", Address: netip.MustParseAddr(private), Carries: "migration", Rate: 100e6},
		}
	}
	m, n := budgeted(t, "precopy", 120*time.Millisecond, 0)
	m.a.config.Uplinks, n.Uplinks = uplinks("127.0.0.1", "127.0.0.2"), uplinks("127.0.1.1", "127.0.1.2")
	port, err := ends.FreePort(n.Uplinks[0].Address)
	if err != nil {
		t.Fatal(err)
	}
	m.a.config.Port, m.a.config.Network.MTU, m.a.detours = port, 1400, detour.New("", config.Network{}, nil)
	ends := []netip.AddrPort{}
	for i, after := range []time.Duration{guests, memory} {
		ends = append(ends, netip.AddrPortFrom(n.Uplinks[i].Address, port))
		reflectAfter(t, ends[i], after)
	}
	m.plan.Transfer, m.plan.Tunnel = transfer, "auto"
	m.work.accepted = talk.Acceptance{Token: make([]byte, 16), Ends: ends[:1]}
	return m, n
}

// TestBudgetByTheWayOfMemory: a downtime budget is held against the round trip by which memory's last bytes go, and not
// the guests' packets.
func TestBudgetByTheWayOfMemory(t *testing.T) {
	const far = 300 * time.Millisecond
	for _, transfer := range []string{"lanes", "mptcp", "qemu-tcp", "qemu-multifd"} {
		for _, c := range []struct {
			guests, memory time.Duration
			code           migration.Code
			words          []string
		}{{0, far, migration.CodeBudget, []string{"the round trip of 3", "to rome"}}, {far, 0, "", nil}} {
			m, n := twoWays(t, transfer, c.guests, c.memory)
			if err := m.tryPaths(t.Context(), n); err != nil {
				t.Fatal(err)
			}
			agenttest.Refused(t, transfer, m.budgetFits(n), c.code, c.words...)
			m.predict(t.Context(), n, nil)
			if foreseen := m.rec.Snapshot().Predicted.DowntimeMS; (foreseen < 120) != (c.words == nil) {
				t.Errorf("%s, memory's way takes %v: a pause of %.0f ms is foreseen", transfer, c.memory, foreseen)
			}
		}
	}
}

// TestBudgetByTheWayThatAnswers: an uplink by which nothing answers, and which is tried on, brings no last bytes.
func TestBudgetByTheWayThatAnswers(t *testing.T) {
	for _, transfer := range []string{"lanes", "mptcp"} {
		m, n := twoWays(t, transfer, 0, 300*time.Millisecond)
		m.a.config.Uplinks = append(m.a.config.Uplinks, config.Uplink{Name: "spare", Address: netip.MustParseAddr("127.0.0.3"), Carries: "migration", Rate: 100e6})
		n.Uplinks = append(n.Uplinks, config.Uplink{Name: "spare", Address: netip.MustParseAddr("127.0.1.3"), Carries: "migration", Rate: 100e6})
		if err := m.tryPaths(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		if got := ways.Names(m.paths(n)); !slices.Equal(got, []string{"private-private", "spare-spare"}) {
			t.Errorf("%s: memory goes over %q", transfer, got)
		}
		agenttest.Refused(t, transfer, m.budgetFits(n), migration.CodeBudget, "the round trip of 3", "to rome")
	}
}

// TestRatesOfTheWaysThatAnswer: an uplink by which nothing answers counts neither for what a pause takes nor for what a
// copy may.
func TestRatesOfTheWaysThatAnswer(t *testing.T) {
	m, n := fastAndSlow(t, "lanes", nil, nil)
	for _, uplinks := range [][]config.Uplink{m.a.config.Uplinks, n.Uplinks} {
		uplinks[1].Rate, uplinks[2].Rate = 1000e6, 1e6
	}
	m.plan.Downtime, m.work.facts.Memory = 120*time.Millisecond, 256<<20
	m.choosePaths(n, map[[2]netip.Addr]time.Duration{{netip.MustParseAddr(slow1), netip.MustParseAddr(slow2)}: time.Millisecond})
	all := m.paths(n)
	if got := ways.Names(all); !slices.Equal(got, []string{"slow-slow", "fast-fast"}) {
		t.Fatalf("memory goes over %q", got)
	}
	agenttest.Refused(t, "the devices' state", m.budgetFits(n), migration.CodeBudget, "at least 3")
	if m.work.mirrors = new(disks.Source); m.diskRate(all, 5e6) != 5e6 { // of which no lane works just now
		t.Errorf("the last of disks goes at %d bytes/s", m.diskRate(all, 5e6))
	}
	if once := 2147 * time.Second; m.copyLimit(all) < once {
		t.Errorf("a copy that takes %v is given up after %v", once, m.copyLimit(all))
	}
}

// TestMemoryPathsAreGivenTime: how large a packet memory's way carries is found out, also where that is by far longer
// than the guests'.
func TestMemoryPathsAreGivenTime(t *testing.T) {
	m, n := twoWays(t, "qemu-mptcp", 0, 400*time.Millisecond)
	if err := m.tryPaths(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	if got, want := m.work.memoryMTUs, []int{1500 - mostOverhead}; !slices.Equal(got, want) {
		t.Errorf("tunnels for memory of %d bytes, want %d", got, want)
	}
}
