package agent

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"godwit/agent/agenttest"
	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/guests"
	"godwit/agent/peer"
	"godwit/agent/record"
	"godwit/agent/talk"
	"godwit/migration"
	"godwit/vm"
	"godwit/vm/guest"
)

// addressAt is an address with its home.
func addressAt(prefix, home string) migration.Address {
	return migration.Address{Prefix: netip.MustParsePrefix(prefix), Home: home}
}

// given is one that the last handover gave.
func given(addr migration.Address) migration.Address {
	addr.Handover = "m-00000001"
	return addr
}

// headedFor is a guest of oslo, on its way to rome, that has those addresses.
func headedFor(t *testing.T, network string, held ...migration.Address) *outgoing {
	t.Helper()
	a := bareAgent(t, &config.Config{Host: "oslo", Site: "north", Network: config.Network{V4: netip.MustParsePrefix("10.3.1.0/24")}, Peers: []config.Neighbour{
		{Host: "rome", Site: "south"}, {Host: "bari", Site: "south"}, {Host: "lecce", Site: "south"}, {Host: "tirana", Site: "south"}, {Host: "bergen", Site: "north"},
	}})
	for _, host := range []string{"bari", "lecce"} {
		a.links[host] = linked(t, "oslo", host, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { peer.Answer(w, talk.Presence{}, nil) }))
	}
	plan := migration.Plan{Guest: "web", Network: network, Held: held, From: "oslo", FromSite: "north", To: "rome", ToSite: "south"}
	return &outgoing{a: a, guest: guests.New(care.Held{}, nil), plan: plan, work: &sourceWork{}, rec: record.New("oslo", plan, time.Now())}
}

// TestGoesHome: a guest that has nothing but addresses which are at home where it goes, or are given back there, keeps
// them, unless somebody said otherwise.
func TestGoesHome(t *testing.T) {
	rome, oslo := addressAt("10.2.1.20/24", "rome"), addressAt("10.3.1.20/24", "oslo")
	lent, bergen, other := addressAt("10.2.1.20/24", "bari"), addressAt("10.3.1.20/24", "bergen"), addressAt("10.2.1.20/24", "bari")
	lecce := addressAt("fd00:2::20/64", "lecce")
	lent.SubnetAgent, bergen.SubnetAgent, lecce.SubnetAgent = "bari", "bergen", "lecce"
	silent := addressAt("10.2.1.20/24", "tirana")
	for _, c := range []struct {
		name, network, next, want string
		held                      []migration.Address
		leases                    bool
	}{
		{name: "home", network: "auto", held: []migration.Address{rome}, want: "tunnel"},
		{name: "home, with both families", network: "auto", held: []migration.Address{rome, addressAt("fd00:2::20/64", "rome")}, want: "tunnel"},
		{name: "to a host of the site whose subnet agent stands for it", network: "auto", held: []migration.Address{lent}, want: "tunnel"},
		{name: "to such a host, with one address of its own", network: "auto", held: []migration.Address{lent, addressAt("fd00:2::20/64", "rome")}, want: "tunnel"},
		{name: "of two subnet agents", network: "auto", held: []migration.Address{lent, lecce}, want: "auto"},
		{name: "to another host of its home's site", network: "auto", held: []migration.Address{other}, want: "tunnel"},
		{name: "to such a host, but its home is gone", network: "auto", held: []migration.Address{silent}, want: "auto"},
		{name: "to such a host, as it was asked for", network: "drain", held: []migration.Address{other}, want: "drain"},
		{name: "elsewhere", network: "auto", held: []migration.Address{oslo}, want: "auto"},
		{name: "elsewhere, with a subnet agent", network: "auto", held: []migration.Address{bergen}, want: "auto"},
		{name: "home, with an old address of elsewhere", network: "auto", held: []migration.Address{given(rome), oslo}, want: "tunnel", leases: true},
		{name: "home, with an old address from there", network: "auto", held: []migration.Address{given(rome), addressAt("10.2.1.21/24", "rome")}, want: "tunnel", leases: true},
		{name: "to where an old address is at home", network: "auto", held: []migration.Address{given(oslo), rome}, want: "auto"},
		{name: "home, with an old address from another host there", network: "auto", held: []migration.Address{given(rome), other}, want: "tunnel", leases: true},
		{name: "home, with an old address from another host there, which is gone", network: "auto", held: []migration.Address{given(rome), addressAt("10.2.1.21/24", "tirana")}, want: "tunnel", leases: true},
		{name: "home, with old addresses from two other hosts there", network: "auto", held: []migration.Address{addressAt("10.2.1.21/24", "bari"), given(rome), addressAt("10.2.1.22/24", "lecce")}, want: "tunnel", leases: true},
		{name: "to a host of its home's site, which is gone, with an old address of that", network: "auto", held: []migration.Address{addressAt("10.2.1.21/24", "tirana"), given(silent)}, want: "auto"},
		{name: "with addresses of its own of its home, and of another host there", network: "auto", held: []migration.Address{given(rome), given(lecce), addressAt("10.2.1.21/24", "bari")}, want: "auto"},
		{name: "to a host of its home's site, with an old address of a third one there", network: "auto", held: []migration.Address{given(other), addressAt("10.2.1.21/24", "lecce")}, want: "auto"},
		{name: "home, with an old address, as it was asked for", network: "mptcp", held: []migration.Address{given(rome), oslo}, want: "mptcp"},
		{name: "home, with an address of another site", network: "auto", held: []migration.Address{oslo, rome}, want: "auto"},
		{name: "home, to have another address", network: "auto", next: "10.2.1.30", held: []migration.Address{rome}, want: "auto"},
		{name: "home, as it was asked for", network: "mptcp", held: []migration.Address{rome}, want: "mptcp"},
		{name: "with none", network: "auto", want: "auto"},
	} {
		m := headedFor(t, c.network, c.held...)
		if c.next != "" {
			m.plan.Want = netip.MustParseAddr(c.next)
		}
		m.settleHome(t.Context())
		if m.noteHome(); m.plan.Network != c.want {
			t.Errorf("%s: network %s, want %s", c.name, m.plan.Network, c.want)
		}
		notes := m.rec.Snapshot().Notes
		if told := strings.Contains(strings.Join(notes, ""), "beside that"); (len(notes) > 0) != (c.network != c.want) || told != c.leases || m.plan.Leases != c.leases {
			t.Errorf("%s: old ones are leased: %v; notes %q", c.name, m.plan.Leases, notes)
		}
	}
}

// TestNotFitForHome: a guest that would not be reached at home as it is, since a handover failed late, takes a next
// address there.
func TestNotFitForHome(t *testing.T) {
	for _, c := range []struct {
		name          string
		first, second []string
		taps          int
		want          string
	}{
		{"as it kept it", []string{"10.2.1.20/24"}, nil, 2, "tunnel"},
		{"somebody gave it another here", []string{"10.2.1.20/24", "10.3.1.30/24"}, nil, 2, "tunnel"},
		{"a NIC that was made ready", []string{"10.2.1.20/24"}, []string{"10.3.1.9/32"}, 2, "tunnel"},
		{"it sends by the next address", []string{"10.2.1.20/24"}, []string{"10.3.1.9/24"}, 2, "auto"},
		{"it has lost its own", nil, []string{"10.3.1.9/24"}, 2, "auto"},
		{"it has lost its own, and can take none", nil, []string{"10.3.1.9/24"}, 1, "tunnel"},
	} {
		m := headedFor(t, "auto", given(addressAt("10.2.1.20/24", "rome")), addressAt("10.9.1.20/24", "bergen")) // it may lack the old one
		m.guest = having(t, c.first, c.second)
		m.guest.Remember(func(h *care.Held) { h.Addresses, h.Taps = m.plan.Held, make([]string, c.taps) })
		info, err := m.guest.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		m.settleHome(t.Context())
		if m.reconsiderHome(info); m.plan.Network != c.want || m.plan.Leases != (c.want == "tunnel") {
			t.Errorf("%s: network %s, want %s", c.name, m.plan.Network, c.want)
		}
	}
}

// TestFollowsFromTheOld: a guest that has MPTCP connections on an old address takes a next one at home, to which they
// follow; what it has on its own, and plain TCP, is no reason to.
func TestFollowsFromTheOld(t *testing.T) {
	own, old := given(addressAt("10.2.1.20/24", "rome")), addressAt("10.9.1.20/24", "bergen")
	for _, c := range []struct {
		name  string
		held  []migration.Address
		users guest.Users // a negative number: it does not say
		taps  int
		want  string
	}{
		{"plain TCP", []migration.Address{own, old}, guest.Users{TCP: 2}, 2, "tunnel"},
		{"MPTCP", []migration.Address{own, old}, guest.Users{MPTCP: 1, TCP: 2}, 2, "auto"},
		{"MPTCP, and it can take none", []migration.Address{own, old}, guest.Users{MPTCP: 1}, 1, "tunnel"},
		{"it does not say", []migration.Address{own, old}, guest.Users{MPTCP: -1}, 2, "tunnel"},
		{"MPTCP on its own", []migration.Address{own}, guest.Users{MPTCP: 1}, 2, "tunnel"},
	} {
		m := headedFor(t, "auto", c.held...)
		m.guest = talking(t, map[string]guest.Handler{"users": func(_ context.Context, _ string, params json.RawMessage) (any, error) {
			if strings.Contains(string(params), own.Prefix.Addr().String()) {
				t.Errorf("%s: it was asked for %s", c.name, params)
			}
			if c.users.MPTCP < 0 {
				return nil, errors.New("it cannot")
			}
			return c.users, nil
		}})
		m.guest.Remember(func(h *care.Held) { h.Taps = make([]string, c.taps) })
		m.settleHome(t.Context())
		if m.reconsiderOld(t.Context()); m.plan.Network != c.want || m.work.home != (c.want == "tunnel") || m.plan.Leases != (c.want == "tunnel" && len(c.held) > 1) {
			t.Errorf("%s: network %s, want %s", c.name, m.plan.Network, c.want)
		}
	}
}

// fits is a QEMU that could migrate, but for its memory's pages by mode hybrid.
type fits struct{ vm.Machine }

func (fits) Facts(context.Context) (vm.Facts, error) {
	return vm.Facts{Version: "10.0.2", Accel: "kvm", PageSize: 2 << 20}, nil
}
func (fits) GuestChannel() string { return "" }

func (fits) Status(context.Context) (vm.Status, error) { return vm.Running, nil }

// TestHomeByOneNIC: a guest that goes home needs no NIC for a next address, nor anybody in it.
func TestHomeByOneNIC(t *testing.T) {
	for _, c := range []struct {
		home, want string
		code       migration.Code
	}{{"rome", "mode hybrid", migration.CodeHypervisor}, {"oslo", "it has no second NIC", migration.CodeGuest}} { // which is looked at later, and sooner
		m := headedFor(t, "auto", addressAt("10.2.1.20/24", c.home))
		m.a.config.Network.Gateway4 = netip.MustParseAddr("10.3.1.1")
		m.plan.Mode, m.guest = "hybrid", guests.New(care.Held{Taps: []string{"tap0"}, Addresses: m.plan.Held}, fits{})
		agenttest.Refused(t, c.home, m.checkHere(t.Context()), c.code, c.want)
	}
}

// TestNotGivenBack: what a subnet agent does not give back is told, and is no address at home.
func TestNotGivenBack(t *testing.T) {
	lent, own := addressAt("10.2.1.20/24", "bari"), addressAt("fd00:2::20/64", "rome")
	lent.SubnetAgent = "bari"
	for _, back := range [][]netip.Addr{{lent.Prefix.Addr()}, nil} {
		m := headedFor(t, "auto", lent, own)
		m.settleHome(t.Context())
		m.work.prepared.Home = back
		m.noteVisits()
		if notes := m.rec.Snapshot().Notes; (len(notes) == 0) != (back != nil) || len(notes) > 0 && !strings.Contains(notes[0], "10.2.1.20 is not given back by bari") {
			t.Errorf("given back: %v; notes %q", back, notes)
		}
	}
}
