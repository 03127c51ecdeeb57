package lab

import (
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"godwit/agent/config"
	"godwit/lab/traffic"
	"godwit/migration"
	"godwit/netstate/netns"
)

const sixAloneWorld = `
name: six-alone
sites:
  - {name: montreal, guest_net: {v6: fd00:1:1::/64}, uplinks: [{name: six, rate: 350mbit, delay: 2ms}]}
  - {name: sanjose, guest_net: {v6: fd00:2:1::/64}, uplinks: [{name: six, rate: 350mbit, delay: 2ms}]}
clients:
  - {name: phone, at: internet}
  - {name: desk, at: internet, mptcp: off}
  - {name: wide, at: internet, uplinks: 2}
  - {name: spare, at: internet, uplinks: 2, mptcp: backup}
guests:
  - {name: web, site: montreal, memory: 128MiB}
`

// TestIPv6Alone: a guest that has addresses of IPv6 alone, as its hosts have, moves and comes home. Connections follow
// by one subflow from each address of their clients, of which a backup stays one, and takes over when the other goes;
// one client is away at the guest's switch, and comes back with the address that it had. Plain TCP and UDP
// lose nothing.
func TestIPv6Alone(t *testing.T) {
	p := newTrial(t, sixAloneWorld, func(_ string, c *config.Config) {
		sixes(c.Uplinks)
		for _, n := range c.Peers {
			sixes(n.Uplinks)
		}
	})
	home := p.addresses("montreal")[0]
	for _, f := range []traffic.Flow{
		{Name: "phone ticks", Kind: traffic.Ticks, MPTCP: true}, {Name: "wide ticks", Kind: traffic.Ticks, MPTCP: true},
		{Name: "spare download", Kind: traffic.Download, Rate: 16e6, MPTCP: true},
		{Name: "desk ticks", Kind: traffic.Ticks}, {Name: "desk udp", Kind: traffic.UDP, Every: 20 * time.Millisecond},
	} {
		client, _, _ := strings.Cut(f.Name, " ")
		f.Target = home
		p.must(p.w.clients[client].Start(f))
	}
	p.subflowsOfAll("montreal")
	for _, move := range [][2]string{{"montreal", "sanjose"}, {"sanjose", "montreal"}} {
		p.from = move[0]
		id := p.began(migration.Request{Guest: "web", To: move[1]})
		if p.from == "sanjose" {
			p.reaches(id, string(migration.SourceSuspend))
			p.must(p.w.topo.ReturnClient(t.Context(), "phone", 1500*time.Millisecond))
		}
		rep := p.ends(id, time.Minute)
		if rep.Outcome != migration.Completed || rep.Network != "mptcp" {
			t.Fatalf("to %s: %s by %s: %+v, %v", move[1], rep.Outcome, rep.Network, rep.Problem, rep.Notes)
		}
		p.fates(rep, map[string]string{"phone mptcp": "moved: ", "wide mptcp": "moved: ", "spare mptcp": "moved: "})
		p.subflowsOfAll(move[1])
	}
	p.over([]string{"phone ticks", "wide ticks", "desk ticks", "desk udp"}, true) // plain ones cannot
	p.backupTakesOver("spare")
	p.over([]string{"spare download"}, true)
	for _, a := range p.w.agents {
		p.must(a.client.EndDetours(t.Context()))
	}
	p.nothingLed()
}

// subflowsOfAll sees that each client that follows has the subflows that it is to have to where the guest is now, and
// that the backup is none that carries.
func (p *trial) subflowsOfAll(host string) {
	p.Helper()
	when, addr := "at "+host, p.addresses(host)[0]
	for _, client := range []string{"phone", "wide", "spare"} {
		p.oneSubflowEach(when, client, 1, addr)
	}
	before := p.carried("spare")
	var by [2]uint64
	eventually(p.T, when+": the download goes on", func() bool {
		for i, now := range p.carried("spare") {
			by[i] = now - before[i]
		}
		return by[0]+by[1] > 2e6
	})
	if by[1]*20 > by[0]+by[1] {
		p.Errorf("%s: of %d bytes the backup carried %d", when, by[0]+by[1], by[1])
	}
}

// backupTakesOver has a client's first uplink go.
func (p *trial) backupTakesOver(client string) {
	p.Helper()
	before := p.carried(client)
	p.in(p.w.topo.Client(client).Namespace, "ip", "link", "set", "eth0", "down")
	eventually(p.T, "the backup takes over", func() bool { return p.carried(client)[1]-before[1] > 2e6 })
}

// carried is what each of a client's two uplinks has brought it, bytes.
func (p *trial) carried(client string) (by [2]uint64) {
	p.Helper()
	p.must(netns.Do(p.w.topo.Client(client).Namespace, func() error {
		for i, device := range []string{"eth0", "eth1"} {
			link, err := netlink.LinkByName(device)
			if err != nil {
				return err
			}
			by[i] = link.Attrs().Statistics.RxBytes
		}
		return nil
	}))
	return by
}
