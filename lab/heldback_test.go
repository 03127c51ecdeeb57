package lab

import (
	"syscall"
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/lab/scenario"
	"godwit/lab/traffic"
	"godwit/lab/wan"
	"godwit/migration"
)

const heldBackWorld = `
name: held-back
sites:
  - {name: montreal, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: public, rate: 200mbit, delay: 25ms, queue: 2MB}]}
  - {name: sanjose, guest_net: {v4: 10.2.1.0/24}, uplinks: [{name: public, rate: 200mbit, delay: 25ms, queue: 2MB}]}
clients:
  - {name: plain, at: montreal, mptcp: "off"}
guests:
  - {name: web, site: montreal, memory: 160MiB, run: ["dirty size=32MiB"]}
`

// TestHeldPacketsComeBack kills the destination's QEMU while the last of memory is sent to it. It
// refuses the guest by itself, and what waited there for the guest comes back to it. So it does where the
// destination is the guest's home, and the move is called off.
func TestHeldPacketsComeBack(t *testing.T) {
	p := newTrial(t, heldBackWorld, func(string, *config.Config) {})
	p.datagrams("plain", "web")
	before := p.inventory()
	id := p.began(migration.Request{Guest: "web", To: "sanjose", Mode: "stopcopy", Downtime: time.Minute})
	p.reaches(id, string(migration.SourceSuspend))
	time.Sleep(500 * time.Millisecond)
	pid, err := p.w.agents["sanjose"].qemuPID(p.Context(), "web")
	p.must(err)
	p.must(syscall.Kill(pid, syscall.SIGKILL))
	const killed = "destination's QEMU killed in the switch"
	rep := p.ends(id, 10*time.Second)
	p.is(killed, rep.Outcome, migration.Aborted)
	p.said(killed, rep.Problem, migration.CodeHypervisor, "guest web", "sanjose")
	p.untouchedBy(killed, before, 5*time.Second)
	p.allCame("plain", killed)
	p.comesBackFromHome()
}

// datagrams has a client send a guest one each millisecond.
func (p *trial) datagrams(client, name string) {
	p.Helper()
	info, err := p.guest(p.leads(), name)
	p.must(err)
	p.must(p.w.clients[client].Start(traffic.Flow{
		Name: "udp", Kind: traffic.UDP, Every: time.Millisecond, Target: info.Addresses[0].Prefix.Addr(),
	}))
	go func() {
		for range p.w.clients[client].Samples() { //nolint:revive // nobody else reads them
		}
	}()
	time.Sleep(200 * time.Millisecond)
}

// allCame ends them, and says when some were lost.
func (p *trial) allCame(client, name string) {
	p.Helper()
	time.Sleep(time.Second)
	r, err := p.w.clients[client].Stop("udp")
	p.must(err)
	if !r.Survived || r.Lost > 0 || r.Repeated+r.Corrupt > 0 {
		p.Errorf("%s: survived %v, lost %d, repeated %d, corrupt %d\n%s", name, r.Survived, r.Lost, r.Repeated, r.Corrupt, p.missing(&r))
	}
}

// comesBackFromHome calls a move home off when the home has taken the guest's address back already: what
// waited there is sent after the guest, which stays away. The move there is quick, and the way home
// long, and full of memory: the source may not be told in time that the home leads the address away again.
func (p *trial) comesBackFromHome() {
	p.Helper()
	move := func(to string) string {
		return p.began(migration.Request{Guest: "web", To: to, Network: "tunnel", Downtime: 10 * time.Second})
	}
	p.delays(2 * time.Millisecond)
	p.datagrams("plain", "web")
	p.is("there", p.ends(move("sanjose"), 60*time.Second).Outcome, migration.Completed)
	p.allCame("plain", "there") // the first that is held is the first frame at its tap: this site has no IPv6
	p.delays(60 * time.Millisecond)
	p.from = "sanjose"
	before := p.inventory()
	p.datagrams("plain", "web")
	id := move("montreal")
	p.did(id, "addresses come home") // a round trip of 240 ms and more is left until the flip
	p.must(p.w.agents["sanjose"].client.Abort(p.Context(), id))
	const calledOff = "called off on the way home"
	rep := p.ends(id, 10*time.Second)
	p.is(calledOff, rep.Outcome, migration.Aborted)
	p.said(calledOff, rep.Problem, migration.CodeAsked, "aborted on request")
	p.untouchedBy(calledOff, before, 15*time.Second)
	p.allCame("plain", calledOff)
}

// delays sets the delay of every uplink.
func (p *trial) delays(d time.Duration) {
	p.Helper()
	for _, site := range p.w.scenario.Sites {
		p.must(p.w.topo.SetLink(site.Name, scenario.AllUplinks, func(l *wan.Link) { l.Delay = d }))
	}
}
