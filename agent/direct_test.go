package agent

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/ends"
	"godwit/agent/guests"
	"godwit/migration"
)

// TestPathsAsTheSourceMeans: both ends of each tunnel for memory are at the uplinks of one path, also where the hosts
// have them in other orders, or one does not know the other's rates; a source of before says nothing of that, and one
// that means what is no path here, or one twice, is not believed.
func TestPathsAsTheSourceMeans(t *testing.T) {
	up := func(name, addr string, rate int64) config.Uplink {
		return config.Uplink{Name: name, Address: netip.MustParseAddr(addr), Carries: "both", Rate: rate}
	}
	here := []config.Uplink{up("fibre", "127.0.0.1", 100e6), up("six", "::1", 200e6)}
	there := []config.Uplink{up("fibre", "127.0.1.1", 500e6), up("six", "::2", 500e6)}
	unrated := []config.Uplink{up("fibre", "127.0.0.1", 0), up("six", "::1", 0)}
	rome := bareAgent(t, &config.Config{Host: "rome", Uplinks: there, Peers: []config.Neighbour{{Host: "paris", Uplinks: unrated}}})
	paths := func(named ...string) (out []string) {
		plan := migration.Plan{From: "paris", To: "rome", Transfer: "qemu-mptcp"}
		for _, pair := range named {
			local, remote, _ := strings.Cut(pair, " ")
			plan.Paths = append(plan.Paths, [2]netip.Addr{netip.MustParseAddr(local), netip.MustParseAddr(remote)})
		}
		for _, p := range (&incoming{a: rome, plan: plan}).paths() {
			out = append(out, p.Remote.String()+" "+p.Local.String())
		}
		return out
	}
	var meant []string
	for _, p := range (&config.Config{Uplinks: here}).Paths(config.Neighbour{Uplinks: there}) {
		meant = append(meant, p.Local.String()+" "+p.Remote.String())
	}
	own := paths()
	if got := paths(meant...); slices.Equal(own, meant) || !slices.Equal(got, meant) {
		t.Errorf("%q, of own accord %q, want %q", got, own, meant)
	}
	for _, what := range []string{"127.0.0.1 127.0.1.9", "127.0.0.1 ::2", "127.0.1.1 127.0.0.1", meant[0]} {
		if got := paths(meant[0], what); !slices.Equal(got, own) {
			t.Errorf("%s: %q, want %q", what, got, own)
		}
	}
}

// TestMemoryPathsMeasured: no path is tried where no tunnel is made; one over IPv6 has the least.
func TestMemoryPathsMeasured(t *testing.T) {
	six := netip.MustParseAddr("::1")
	c := &config.Config{Host: "paris", Uplinks: []config.Uplink{{Name: "public", Address: six, Carries: "both"}}}
	n := config.Neighbour{Host: "rome", Uplinks: []config.Uplink{{Name: "public", Address: six, Carries: "both"}}}
	for _, test := range []struct {
		plan migration.Plan
		want int
	}{
		{migration.Plan{Transfer: "qemu-mptcp"}, ends.LeastMemoryMTU},
		{migration.Plan{Transfer: "qemu-mptcp", Insecure: true}, 0},
		{migration.Plan{Transfer: "lanes"}, 0},
	} {
		m := &outgoing{a: &Agent{config: c}, plan: test.plan, work: &sourceWork{}}
		m.measureMemoryPaths(t.Context(), n)
		if got := append(m.work.memoryMTUs, 0)[0]; got != test.want {
			t.Errorf("%+v: %d, want %d", test.plan, got, test.want)
		}
	}
}

// TestLimitedMultifdIsEncrypted: QEMU's own multifd would send more than was asked for.
func TestLimitedMultifdIsEncrypted(t *testing.T) {
	a := bareAgent(t, &config.Config{Host: "paris", Site: "paris", Peers: []config.Neighbour{{Host: "rome", Site: "rome"}}})
	underCare(t, a.guests, "web", guests.New(care.Held{Description: config.Description{Name: "web"}}, nil))
	for _, test := range []struct {
		transfer  string
		bandwidth int64
		insecure  bool
	}{
		{"qemu-multifd", 0, true},
		{"qemu-multifd", 40e6, false},
		{"qemu-tcp", 40e6, true},
	} {
		m, err := a.draft(migration.Request{Guest: "web", To: "rome", Transfer: test.transfer, Bandwidth: test.bandwidth, InsecureTransfer: true})
		if err != nil {
			t.Fatal(err)
		}
		notes := m.rec.Snapshot().Notes
		if m.plan.Insecure != test.insecure || test.insecure != (len(notes) == 0) {
			t.Errorf("%s limited to %d: insecure %v, notes %q", test.transfer, test.bandwidth, m.plan.Insecure, notes)
		}
		m.guest.Drop(m.plan.ID)
	}
}
