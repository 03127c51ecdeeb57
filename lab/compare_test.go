package lab

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/migration"
	"godwit/vm/qemu"
	"godwit/vm/vmtest"
)

const compareWorld = `
name: compare
sites:
  - {name: montreal, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: public, rate: 400mbit, delay: 2ms}]}
  - {name: sanjose, guest_net: {v4: 10.2.1.0/24}, uplinks: [{name: public, rate: 400mbit, delay: 2ms}]}
clients:
  - {name: phone, at: montreal}
guests:
  - {name: web, site: montreal, memory: 128MiB}
`

// TestDamagedMemoryIsFound damages pages in the destination's QEMU while a hook holds the
// guest: what compares memory says so, and the guest runs on where it was. Without the
// damage it goes.
func TestDamagedMemoryIsFound(t *testing.T) {
	p := newTrial(t, compareWorld, func(string, *config.Config) {})
	p.ticks("phone", "web")
	goOn := filepath.Join(p.w.dir, "go-on")
	remove := p.script("montreal", migration.PreSourceSuspend, "10-waits", "until [ -e "+goOn+" ]; do sleep 0.05; done")
	p.damages = true
	before := p.inventory()
	id := p.began(migration.Request{Guest: "web", To: "sanjose", Transfer: "lanes"})
	p.reaches(id, string(migration.PreSourceSuspend))
	p.damage("montreal", "sanjose")
	p.must(os.WriteFile(goOn, nil, 0o600))
	rep := p.ends(id, 40*time.Second)
	if rep.Outcome != migration.Aborted || rep.Problem == nil {
		t.Fatalf("a guest whose memory is not what it was: %s, %v", rep.Outcome, rep.Problem)
	}
	p.said("a damaged page", rep.Problem, migration.CodeHypervisor, "guest web", "sanjose", "pages differ, the first at pc.ram+0x")
	t.Log(p.lines.lines)
	p.untouchedBy("a damaged page", before, 5*time.Second)
	g, err := p.guest("montreal", "web")
	if err != nil || g.Status != "running" || p.gap() > 5*time.Second {
		t.Errorf("the guest after that: %+v, %v", g, err)
	}
	if p.w.compared(&rep) == nil {
		t.Error("the lab does not see it")
	}
	remove()
	p.damages = false
	rep = p.ends(p.began(migration.Request{Guest: "web", To: "sanjose", Transfer: "lanes"}), 40*time.Second)
	p.is("without damage", rep.Outcome, migration.Completed)
	p.ticksWhole()
}

// damage changes pages of the waiting QEMU that are what they are at the source: some of
// them will not be written again.
func (p *trial) damage(from, to string) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), 20*time.Second)
	defer cancel()
	memory := func(host string) (*qemu.Memory, qemu.Sums) {
		for dir := range p.w.agents[host].qemus() {
			l, err := qemu.Look(ctx, dir)
			p.must(err)
			defer l.Close()
			m, err := l.Memory(ctx)
			p.must(err)
			sums, err := m.Sums(ctx, false)
			p.must(err)
			return m, sums
		}
		p.Fatal("no QEMU on " + host)
		return nil, nil
	}
	_, before := memory(from)
	at, there := memory(to)
	zero := qemu.Sum(make([]byte, qemu.PageSize))
	done := 0
	for page, sum := range there["pc.ram"] {
		if sum != zero && sum == before["pc.ram"][page] && page%64 == 0 {
			p.must(vmtest.Damage(at, "pc.ram", page))
			done++
		}
	}
	if p.Logf("%d pages were damaged", done); done == 0 {
		p.Fatal("no page has arrived")
	}
}
