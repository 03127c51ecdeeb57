package lab

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"godwit/agent"
	"godwit/lab/traffic"
	"godwit/migration"
)

const heldBackWorld = `
name: held-back
sites:
  - {name: montreal, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: public, rate: 200mbit, delay: 25ms}]}
  - {name: sanjose, guest_net: {v4: 10.2.1.0/24}, uplinks: [{name: public, rate: 200mbit, delay: 25ms}]}
clients:
  - {name: plain, at: montreal, mptcp: "off"}
guests:
  - {name: web, site: montreal, memory: 192MiB, run: ["dirty size=80MiB"]}
`

// TestHeldPacketsComeBack kills the destination's QEMU while the last of memory is sent to it. It
// refuses the guest by itself, and what waited there for the guest comes back to it.
func TestHeldPacketsComeBack(t *testing.T) {
	p := newTrial(t, heldBackWorld, func(string, *agent.Config) {})
	p.datagrams("plain", "web")
	id := p.began(migration.Request{Guest: "web", To: "sanjose", Mode: "stopcopy", Downtime: time.Minute})
	p.reaches(id, string(migration.SourceSuspend))
	time.Sleep(500 * time.Millisecond)
	pid, err := p.w.agents["sanjose"].qemuPID(p.Context(), "web")
	p.must(err)
	p.must(syscall.Kill(pid, syscall.SIGKILL))
	p.is("destination's QEMU killed in the switch", p.ends(id, 10*time.Second).Outcome, migration.Aborted)
	p.allCame("plain")
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

// allCame ends them, and says when more were lost than the one that a QEMU reads, of the source as it
// is stopped or of the destination as it waits.
func (p *trial) allCame(client string) {
	p.Helper()
	time.Sleep(time.Second)
	r, err := p.w.clients[client].Stop("udp")
	p.must(err)
	if !r.Survived || r.Lost > 1 || r.Repeated+r.Corrupt > 0 {
		p.Errorf("survived %v, lost %d, repeated %d, corrupt %d", r.Survived, r.Lost, r.Repeated, r.Corrupt)
	}
}

// TestHeldPacketsComeBackFromHome calls a move home off when the home has taken the guest's address
// back already: what waited there is sent after the guest, which stays away.
func TestHeldPacketsComeBackFromHome(t *testing.T) {
	p := newTrial(t, strings.ReplaceAll(heldBackWorld, "25ms", "60ms"), func(string, *agent.Config) {})
	move := func(to string) string {
		return p.began(migration.Request{Guest: "web", To: to, Network: "tunnel", Downtime: 10 * time.Second})
	}
	p.is("there", p.ends(move("sanjose"), 60*time.Second).Outcome, migration.Completed)
	p.from = "sanjose"
	p.datagrams("plain", "web")
	id := move("montreal")
	p.reaches(id, string(migration.Switch))
	time.Sleep(300 * time.Millisecond) // a round trip is 240 ms
	p.must(p.w.agents["sanjose"].client.Abort(p.Context(), id))
	p.is("called off on the way home", p.ends(id, 10*time.Second).Outcome, migration.Aborted)
	p.allCame("plain")
}
