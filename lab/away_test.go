package lab

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/agent/record"
	"godwit/lab/traffic"
	"godwit/migration"
	"godwit/vm/guest"
)

const awayWorld = `
name: away
sites:
  - {name: montreal, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: public, rate: 200mbit, delay: 2ms}]}
  - {name: sanjose, guest_net: {v4: 10.2.1.0/24}, uplinks: [{name: public, rate: 200mbit, delay: 2ms}]}
clients:
  - {name: phone, at: internet}
  - {name: desk, at: internet}
guests:
  - {name: web, site: montreal, memory: 160MiB}
`

// TestClientThatWasAway: a client that was out of reach from the switch until long after the handover, and comes back
// somewhere else, follows to the next address while the tunnel to the old one is leased, which ends then. The agent there
// was started again meanwhile.
func TestClientThatWasAway(t *testing.T) {
	const lease, gap = time.Minute, 25 * time.Second
	p := newTrial(t, awayWorld, func(_ string, c *config.Config) { c.Lease = lease })
	info, err := p.guest("montreal", "web")
	p.must(err)
	old, clients := info.Addresses[0].Prefix.Addr(), []string{"phone", "desk"}
	at := map[string]netip.Addr{}
	for _, client := range clients {
		at[client] = p.addr(client)
		p.must(p.w.clients[client].Start(traffic.Flow{Name: "ticks", Kind: traffic.Ticks, Target: old, MPTCP: true}))
		go func() {
			for range p.w.clients[client].Samples() { //nolint:revive // nobody else reads them
			}
		}()
	}
	became := func(rep record.Report, client string) string {
		for _, c := range rep.Survival.Connections {
			if c.Kind == guest.KindMPTCP && c.Remote.Addr() == at[client] {
				return string(c.Fate) + ": " + c.Why
			}
		}
		return "not listed"
	}
	id := p.began(migration.Request{Guest: "web", To: "sanjose", Downtime: 5 * time.Second})
	p.reaches(id, "switch")
	moved := make(chan error, 1)
	go func() { moved <- p.w.topo.MoveClient(p.Context(), "phone", "internet", gap) }()
	rep := p.ends(id, 2*time.Minute)
	if rep.Outcome != migration.Completed || rep.Network != "mptcp" || rep.Survival == nil {
		t.Fatalf("%s by %s: %+v, %v", rep.Outcome, rep.Network, rep.Problem, rep.Notes)
	}
	for client, want := range map[string]string{"phone": "tunnelled: " + guest.WhyAway, "desk": "moved: "} {
		if got := became(rep, client); got != want {
			t.Errorf("%s: %q, want %q", client, got, want)
		}
	}
	p.restart("sanjose", nil) // it knows them by the report
	p.must(<-moved)
	p.joins("phone", rep.Next[0].Prefix.Addr())
	p.joins("desk", rep.Next[0].Prefix.Addr())
	for until := time.Now().Add(lease); ; time.Sleep(100 * time.Millisecond) {
		left := 0
		for _, host := range []string{"montreal", "sanjose"} {
			tunnels, err := p.w.agents[host].client.Tunnels(p.Context())
			p.must(err)
			left += len(tunnels)
		}
		if rep, err = p.leader().Report(p.Context(), id); err == nil && left == 0 && became(rep, "phone") == "moved: late" {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("%d tunnels are there still; the phone's connection: %s, %v; all: %+v", left, became(rep, "phone"), err, rep.Survival.Connections)
		}
	}
	if ended := time.Duration(rep.TunnelDown - rep.Ended); ended >= lease {
		t.Errorf("the tunnel has ended %v after the migration, by its lease", ended)
	}
	if i := slices.IndexFunc(rep.Survival.Connections, func(c record.Survivor) bool { return c.Fate == migration.Lost }); i >= 0 {
		t.Errorf("lost: %+v", rep.Survival.Connections[i])
	}
	for _, client := range clients {
		r, err := p.w.clients[client].Stop("ticks")
		p.must(err)
		if !r.Survived || r.Lost+r.Repeated+r.Corrupt != 0 {
			t.Errorf("ticks of the %s: survived %v, lost %d, repeated %d, corrupt %d", client, r.Survived, r.Lost, r.Repeated, r.Corrupt)
		}
	}
}
