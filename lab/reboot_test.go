package lab

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"godwit/agent/api"
	"godwit/agent/config"
	"godwit/agent/record"
	"godwit/lab/scenario"
	"godwit/lab/wan"
	"godwit/migration"
)

const rebootWorld = `
name: reboot
sites:
  - {name: montreal, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: public, rate: 300mbit, delay: 5ms}]}
  - {name: sanjose, guest_net: {v4: 10.2.1.0/24}, uplinks: [{name: public, rate: 300mbit, delay: 5ms}]}
clients:
  - {name: phone, at: montreal}
guests:
  - {name: web, site: montreal, memory: 128MiB}
`

// reboots lets a host reboot while its agent stays away for a moment.
func (p *trial) reboots(host string) {
	p.Helper()
	a := p.w.agents[host]
	p.must(a.reboot())
	time.Sleep(time.Second)
	p.must(a.start(p.Context()))
}

// losesPower is a reboot of the source in the switch, of whose journal the disk has what had to
// be on it and no more: that the switch began.
func (p *trial) losesPower(host, id string) {
	p.Helper()
	a := p.w.agents[host]
	p.must(a.reboot())
	path := filepath.Join(a.config.State, "journal", id+".journal")
	data, err := os.ReadFile(path)
	p.must(err)
	began := bytes.Index(data, []byte(`"doing":"`+string(migration.Flip)+`"`))
	if began < 0 {
		p.Fatalf("no record of the switch in %s", bytes.TrimRight(data, "\x00"))
	}
	end := began + bytes.IndexByte(data[began:], '\n') + 1
	clear(data[end:])
	p.must(os.WriteFile(path, data, 0o600))
	time.Sleep(time.Second)
	p.must(a.start(p.Context()))
}

// vanishes waits until the source knows that its guest may have run on a destination whose
// QEMU is gone, and that a person must decide.
func (p *trial) vanishes(id string) api.Doubt {
	p.Helper()
	client := p.w.agents["montreal"].client
	for until := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		doubts, err := client.Doubts(p.Context(), id)
		if err == nil && len(doubts) == 1 && doubts[0].Proven {
			return doubts[0]
		}
		if time.Now().After(until) {
			p.Fatalf("no doubt that a person must end: %+v, %v", doubts, err)
		}
	}
}

// backHome checks that the guest runs in montreal, by that right (0: any), and nowhere else.
func (p *trial) backHome(name string, rep record.Report, epoch uint64) {
	p.Helper()
	g, err := p.guest("montreal", "web")
	if err != nil || rep.Outcome != migration.Aborted || g.Status != "running" || epoch != 0 && g.Epoch != epoch || g.Migration != "" {
		p.Fatalf("%s: %+v, %v; %s, %v; want it to run in montreal with epoch %d", name, g, err, rep.Outcome, rep.Problem, epoch)
	}
	if _, err := p.guest("sanjose", "web"); err == nil {
		p.Errorf("%s: the guest is under care in sanjose too", name)
	}
}

// TestHostsReboot: a host takes with it what runs on it. The destination's, after it had
// started the guest, leaves a doubt that a person's word ends, on either host; the source's,
// after the release, is not missed; before it, the guest is lost, and both hosts say so. A fence is
// asked where the other host cannot be, and only there.
func TestHostsReboot(t *testing.T) {
	exactly(t)
	f := newFence(t)
	p := newTrial(t, rebootWorld, func(_ string, c *config.Config) { c.Fence = f.script })
	before := p.inventory()
	p.fenceEndsDoubt(f)
	montreal, sanjose := p.w.agents["montreal"].client, p.w.agents["sanjose"].client

	id := p.began(migration.Request{Guest: "web", To: "sanjose", Downtime: 5 * time.Second})
	p.reaches(id, string(migration.TargetResume))
	p.reboots("sanjose")
	d := p.vanishes(id)
	if d.Side != "source" || d.Risk == "" || !strings.Contains(d.There, "may have run") {
		t.Errorf("doubt: %+v", d)
	}
	p.said("abort", montreal.Abort(t.Context(), id), migration.CodeBusy, "handed over")
	p.said("give up on the source", montreal.GiveUp(t.Context(), id), migration.CodeUsage, "in doubt")
	p.must(sanjose.GiveUp(t.Context(), id))
	p.backHome("given up", p.ends(id, 20*time.Second), 0)
	p.untouchedBy("given up", before, 30*time.Second)

	id = p.began(migration.Request{Guest: "web", To: "sanjose", Downtime: 5 * time.Second})
	p.reaches(id, string(migration.TargetResume))
	p.reboots("sanjose")
	p.vanishes(id)
	p.must(montreal.TakeBack(t.Context(), id, api.TakeBack{})) // no fence is asked: the host says so itself
	if _, err := os.Stat(f.asked); err == nil {
		t.Error("a fence was asked about a host that answers")
	}
	rep := p.ends(id, 20*time.Second)
	p.backHome("taken back", rep, rep.Epoch)
	p.untouchedBy("taken back", before, 30*time.Second)

	id = p.began(migration.Request{Guest: "web", To: "sanjose", Downtime: 5 * time.Second})
	p.reaches(id, string(migration.TargetResume))
	p.losesPower("montreal", id)
	if rep := p.ends(id, 40*time.Second); rep.Outcome != migration.Completed {
		t.Errorf("the source rebooted after the release: %s, %v", rep.Outcome, rep.Problem)
	}
	if g, err := p.guest("sanjose", "web"); err != nil || g.Status != "running" {
		t.Errorf("the source rebooted after the release: %+v, %v", g, err)
	}
	empty := map[string][]string{"montreal": bare(before["montreal"]), "sanjose": before["sanjose"]}

	p.from = "sanjose"
	id = p.began(migration.Request{Guest: "web", To: "montreal", Downtime: 5 * time.Second})
	p.reaches(id, string(migration.Copy))
	p.reboots("sanjose")
	rep = p.ends(id, 40*time.Second)
	if rep.Outcome != migration.Failed || rep.Problem == nil || rep.Problem.Code != migration.CodeGuestGone {
		t.Errorf("the source rebooted before the release: %s, %v; want failed, as the guest is gone", rep.Outcome, rep.Problem)
	}
	p.untouchedBy("the guest is lost", empty, 30*time.Second)
}

// TestSourceLosesPowerInTheSwitch: a source that went with its guest, just when that was
// stopped, finds that the switch had begun and no more. Where the destination has every byte
// the guest runs there, else nowhere; both hosts agree, and nobody has to decide.
func TestSourceLosesPowerInTheSwitch(t *testing.T) {
	exactly(t)
	p := newTrial(t, rebootWorld, func(string, *config.Config) {})
	id := p.began(migration.Request{Guest: "web", To: "sanjose", Downtime: 5 * time.Second})
	p.reaches(id, string(migration.SourceSuspend))
	p.losesPower("montreal", id)
	rep := p.ends(id, 40*time.Second)
	g, err := p.guest("sanjose", "web")
	switch {
	case rep.Outcome == migration.Completed && err == nil && g.Status == "running" && g.Migration == "":
	case rep.Outcome == migration.Failed && err != nil && rep.Problem != nil:
	default:
		t.Errorf("%s, %v; in sanjose: %+v, %v", rep.Outcome, rep.Problem, g, err)
	}
	t.Logf("%s %v", rep.Outcome, rep.Problem)
	if _, err := p.guest("montreal", "web"); err == nil {
		t.Error("the guest is under care in montreal too")
	}
}

// bare is what a host has without the guest that it had.
func bare(have []string) []string {
	var out []string
	for _, h := range have {
		if !strings.Contains(h, "web") && !strings.Contains(h, "qemu") && !strings.Contains(h, "device gw") {
			out = append(out, h)
		}
	}
	return out
}

// A fence that says of a host that it is off when the file off is there, and keeps in the file asked what
// it was told.
type fence struct{ script, off, asked string }

func newFence(t *testing.T) fence {
	t.Helper()
	dir := t.TempDir()
	f := fence{filepath.Join(dir, "fence"), filepath.Join(dir, "off"), filepath.Join(dir, "asked")}
	if err := os.WriteFile(f.script, []byte("#!/bin/sh\ncat > "+f.asked+"\nif [ -e "+f.off+" ]; then exit 0; fi\necho 'no such machine'\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return f
}

// fenceEndsDoubt: in doubt about a host that cannot be asked, the configured fence is
// asked; what it does not prove is not believed. It was wrong here: the guest runs there, and
// is ended when the hosts hear of each other.
func (p *trial) fenceEndsDoubt(f fence) {
	p.Helper()
	before := p.inventory()
	client := p.w.agents["montreal"].client
	id := p.began(migration.Request{Guest: "web", To: "sanjose", Downtime: 5 * time.Second})
	p.reaches(id, string(migration.TargetResume))
	var faults linkFaults
	mend, err := faults.add(p.w.spec().Sites, p.w.topo, "sanjose", scenario.AllUplinks, func(l *wan.Link) { l.Cut = wan.CutBoth })
	p.must(err)
	p.said("a fence that fails", client.TakeBack(p.Context(), id, api.TakeBack{}), migration.CodeUsage, "no such machine", "nothing was changed")
	p.must(os.WriteFile(f.off, nil, 0o600))
	p.must(client.TakeBack(p.Context(), id, api.TakeBack{}))
	said, err := os.ReadFile(f.asked)
	if err != nil || !strings.Contains(string(said), `"host":"sanjose"`) || !strings.Contains(string(said), id) {
		p.Errorf("the fence was told %q, %v", said, err)
	}
	p.must(os.Remove(f.asked))
	rep := p.ends(id, 30*time.Second)
	if g, err := p.guest("montreal", "web"); err != nil || g.Status != "running" || g.Epoch != rep.Epoch || rep.Outcome != migration.Aborted {
		p.Fatalf("fenced, taken back: %+v, %v; %s, epoch %d", g, err, rep.Outcome, rep.Epoch)
	}
	if g, err := p.guest("sanjose", "web"); err != nil || g.Status != "running" {
		p.Fatalf("in sanjose, which nothing reaches: %+v, %v; this test shows nothing", g, err)
	}
	p.must(mend())
	p.untouchedBy("superseded", before, 30*time.Second)
	p.backHome("superseded", rep, rep.Epoch)
}
