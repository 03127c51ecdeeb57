package agent

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/agent/record"
	"godwit/migration"
	"godwit/vm/guest"
)

// TestAddressAboveTheNIC: a guest whose address is on a bridge over its NIC keeps it, or is refused where it was to get
// another.
func TestAddressAboveTheNIC(t *testing.T) {
	nics := []guest.NIC{
		{Name: "eth0", MAC: "52:54:00:00:01:0a", Up: true},
		{Name: "eth1", MAC: "52:54:00:00:01:0b"},
		{Name: "br0", MAC: "52:54:00:00:01:0a", Up: true, Above: true, Addrs: []netip.Prefix{netip.MustParsePrefix("10.2.1.20/24")}},
		{Name: "docker0", MAC: "02:42:00:00:00:01", Up: true, Above: true, Addrs: []netip.Prefix{netip.MustParsePrefix("172.17.0.1/16")}},
	}
	plain := []guest.NIC{nics[0], nics[1], nics[3]}
	plain[0].Addrs = nics[2].Addrs
	spare, active := slices.Clone(plain), slices.Clone(plain)
	spare[1].Part, active[0].Part = true, true
	for _, c := range []struct {
		name, network, want, refused string
		nics                         []guest.NIC
		next                         string
	}{
		{name: "on the NIC", network: "auto", want: "auto", nics: plain},
		{name: "on a bridge", network: "auto", want: "tunnel", nics: nics},
		{name: "on a bridge, kept", network: "tunnel", want: "tunnel", nics: nics},
		{name: "on a bridge, to be changed", network: "mptcp", want: "mptcp", nics: nics, refused: "its address 10.2.1.20 is on br0"},
		{name: "on a bridge, to have another", network: "auto", want: "auto", nics: nics, next: "10.3.1.9", refused: "its address 10.2.1.20 is on br0"},
		{name: "a spare NIC in a bridge, to have another", network: "auto", want: "auto", nics: spare, next: "10.3.1.9", refused: "its spare NIC eth1 is a part of"},
		{name: "a spare NIC in a bridge", network: "auto", want: "tunnel", nics: spare},
		{name: "a spare NIC in a bridge, kept", network: "tunnel", want: "tunnel", nics: spare},
		{name: "a spare NIC in a bridge, to be used", network: "mptcp", want: "mptcp", nics: spare, refused: "its spare NIC eth1 is a part of"},
		{name: "no spare NIC in the guest", network: "auto", want: "tunnel", nics: plain[:1]},
		{name: "no spare NIC in the guest, kept", network: "tunnel", want: "tunnel", nics: plain[:1]},
		{name: "no spare NIC in the guest, to be used", network: "drain", want: "drain", nics: plain[:1], refused: "its spare NIC 52:54:00:00:01:0b is not in the guest"},
		{name: "a guest that does not tell its NICs", network: "mptcp", want: "mptcp"},
		{name: "the other in a bridge", network: "mptcp", want: "mptcp", nics: active},
	} {
		plan := migration.Plan{Network: c.network, Held: []migration.Address{{Prefix: netip.MustParsePrefix("10.2.1.20/24"), Home: "rome"}}}
		if c.next != "" {
			plan.Want = netip.MustParseAddr(c.next)
		}
		m := &outgoing{guest: having(t, nil, nil), plan: plan, rec: record.New("rome", plan, time.Now())}
		err := m.settleAbove(guest.Info{NICs: c.nics})
		if (err == nil) != (c.refused == "") || err != nil && !strings.Contains(err.Error(), c.refused) {
			t.Errorf("%s: %v, want %q", c.name, err, c.refused)
		}
		if m.plan.Network != c.want {
			t.Errorf("%s: network %s, want %s", c.name, m.plan.Network, c.want)
		}
		if notes := m.rec.Snapshot().Notes; (len(notes) > 0) != (c.network != c.want) {
			t.Errorf("%s: notes %q", c.name, notes)
		}
	}
}
