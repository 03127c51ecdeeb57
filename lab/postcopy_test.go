package lab

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/agent/hook"
	"godwit/agent/record"
	"godwit/internal/need"
	"godwit/migration"
)

// postcopyWorld has a guest that writes random bytes faster than its link carries.
const postcopyWorld = `
name: postcopy
sites:
  - {name: montreal, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: public, rate: 60mbit, delay: 5ms}, {name: private, rate: 20mbit, delay: 15ms}]}
  - {name: sanjose, guest_net: {v4: 10.2.1.0/24}, uplinks: [{name: public, rate: 60mbit, delay: 5ms}, {name: private, rate: 20mbit, delay: 15ms}]}
clients:
  - {name: phone, at: montreal}
guests:
  - {name: web, site: montreal, memory: 160MiB, run: ["dirty size=24MiB rate=16MiB/s"]}
`

// starves waits until a migration has reached post-copy, and least pages are missing still.
func (p *trial) starves(host, id string, least uint64) record.Report {
	p.Helper()
	until := time.Now().Add(60 * time.Second)
	for {
		rep, err := p.w.agents[host].client.Report(p.Context(), id)
		if err == nil && rep.PostCopy != nil && rep.PostCopy.Pages >= least && rep.Resumed != 0 {
			return rep
		}
		if err == nil && rep.Ended != 0 || time.Now().After(until) {
			p.Fatalf("migration %s: no post-copy: %s, %v, %+v, %v", id, rep.Outcome, rep.Problem, rep.PostCopy, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Bandwidths (bit/s) at which some thousand pages take many seconds, and at which hardly one comes.
const lateRate, heldRate = 8_000_000, 8_000

// followsSlowly begins a migration of web that is limited once its copy is over and its guest is about to be stopped:
// what follows that comes as slowly, however busy this machine is.
func (p *trial) followsSlowly(from string, req migration.Request) (id string) {
	p.Helper()
	asks := filepath.Join(p.hookDir(from), "asks")
	remove := p.script(from, migration.PreSourceSuspend, slows, "touch "+asks+"; while [ -e "+asks+" ]; do sleep 0.05; done")
	defer remove()
	client := p.w.agents[from].client
	id, err := client.Migrate(p.Context(), req)
	p.must(err)
	for limit := need.Patient(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(asks); err == nil {
			break
		}
		if limit.Over() {
			rep, err := client.Report(p.Context(), id)
			p.Fatalf("migration %s: its guest is not about to be stopped: %s, %v, %+v, %v", id, rep.Outcome, rep.Problem, rep.Phases, err)
		}
	}
	p.must(client.SetBandwidth(p.Context(), id, lateRate))
	p.must(os.Remove(asks))
	return id
}

// slows is the hook by which that waits.
const slows = "10-slows"

// waitsForSlows has an agent wait for that hook.
func waitsForSlows(_ string, c *config.Config) {
	c.Hooks.Files = []hook.File{{Name: slows, Timeout: time.Minute}}
}

// holdsPages has no page come any more of a migration to a host, until it is limited otherwise: some are missing there
// then.
func (p *trial) holdsPages(from, to, id string) {
	p.Helper()
	p.must(p.w.agents[from].client.SetBandwidth(p.Context(), id, heldRate))
	if rep, err := p.w.agents[to].client.Report(p.Context(), id); err != nil || rep.MemoryDone != 0 {
		p.Fatalf("migration %s: all pages had come before they were held: %+v, %v", id, rep.PostCopy, err)
	}
}

// patterns lets the guest check every page that it wrote.
func (p *trial) patterns(host, name string) {
	p.Helper()
	if pages, err := p.w.verified(p.Context(), name, p.w.agents[host]); err != nil || pages == 0 {
		p.Errorf("on %s: %d pages were checked, %v", host, pages, err)
	}
}

// TestPostcopyOutlivesAgents kills agents in the middle of post-copy, as a guest goes there
// and back. It ends whole at the destination each time, and its connection survives.
func TestPostcopyOutlivesAgents(t *testing.T) {
	p := newTrial(t, postcopyWorld, waitsForSlows)
	p.ticks("phone", "web")
	from, to := "montreal", "sanjose"
	kill := func(hosts ...string) {
		for _, host := range hosts {
			p.must(p.w.agents[host].kill())
		}
		time.Sleep(time.Second)
		for _, host := range hosts {
			p.must(p.w.agents[host].start(t.Context()))
		}
	}
	for _, c := range []struct {
		name, mode string
		hurt       func()
	}{
		{"the source's agent is killed", "postcopy", func() { kill(from) }},
		{"the destination's agent is killed", "hybrid", func() { kill(to) }},
		{"both agents are killed", "postcopy", func() { kill(from, to) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			id := p.followsSlowly(from, migration.Request{Guest: "web", To: to, Mode: c.mode, Transfer: "lanes", Downtime: 200 * time.Millisecond})
			before := p.starves(to, id, 1000)
			p.holdsPages(from, to, id)
			c.hurt()
			p.must(p.w.agents[from].client.SetBandwidth(t.Context(), id, 0))
			rep := p.endsOn(from, id, 90*time.Second)
			t.Logf("%+v; when it was hurt %+v; notes %q", rep.PostCopy, before.PostCopy, rep.Notes)
			if rep.Outcome != migration.Completed || rep.PostCopy == nil || rep.PostCopy.Refills == 0 {
				t.Fatalf("%s, %v, %+v", rep.Outcome, rep.Problem, rep.PostCopy)
			}
			if p.gap() >= time.Hour {
				t.Error("the connection was lost")
			}
		})
		from, to = to, from
	}
	p.ticksWhole()
}
