package lab

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"godwit/agent/compare"
	"godwit/agent/config"
	"godwit/agent/record"
	"godwit/lab/image/workload"
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
  - {name: web, site: montreal, memory: 128MiB, run: ["dirty size=4MiB"]}
`

// TestDamagedMemoryIsFound damages pages in the destination's QEMU while a hook holds the
// guest: what compares memory says so, and the guest runs on where it was. Without the
// damage it goes. A page of its own that is damaged then the guest finds.
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
	p.ownPageDamaged(&rep)
	p.ticksWhole()
}

// ownPageDamaged damages a page of the guest's area, which nothing writes to, where the guest has moved to.
func (p *trial) ownPageDamaged(rep *record.Report) {
	p.Helper()
	p.w.moved("web", rep.To)
	troubles := func() []string {
		r := run{w: p.w}
		r.checkMove(&move{guest: "web", report: rep})
		return r.troubles
	}
	if said := troubles(); len(said) > 0 {
		p.Errorf("before: %q", said)
	}
	const area, number, version = 1, 7, 1
	memory, sums := p.memory(rep.To)
	page := 0
	for data := []byte(nil); ; page++ {
		if page == len(sums["pc.ram"]) {
			p.Fatal("the guest's area is not in its memory")
		}
		var err error
		data, err = memory.Page("pc.ram", page)
		if p.must(err); workload.CheckPage(data, area, number, version) {
			break
		}
	}
	p.must(vmtest.Damage(memory, "pc.ram", page))
	const want = "guest web: 1 of 1024 pages are not what it wrote (area 1 page 7 version 1)"
	if said := troubles(); len(said) != 1 || !strings.HasPrefix(said[0], want) {
		p.Errorf("said of a damaged page: %q, want %q", said, want)
	}
}

// TestPagesThatFollowAreCompared: that pages followed a guest, and none of them was compared, is seen; not where an
// agent that knew of them was killed.
func TestPagesThatFollowAreCompared(t *testing.T) {
	const first, late = "m-1.json", "m-1-late.json"
	for name, c := range map[string]struct {
		outcome  migration.Outcome
		postcopy *record.PostCopy
		files    map[string]compare.Found
		want     string // "": nothing is wrong
	}{
		"none followed":                    {migration.Completed, nil, map[string]compare.Found{first: {Pages: 9}}, ""},
		"all had come before":              {migration.Completed, &record.PostCopy{}, map[string]compare.Found{first: {Pages: 9}}, ""},
		"they were compared":               {migration.Completed, &record.PostCopy{Pages: 5}, map[string]compare.Found{first: {Pages: 4}, late: {Pages: 5, Late: true}}, ""},
		"they were not":                    {migration.Completed, &record.PostCopy{Pages: 5}, map[string]compare.Found{first: {Pages: 4}}, "5 pages followed the guest, and none"},
		"none of them is known":            {migration.Completed, &record.PostCopy{Pages: 5}, map[string]compare.Found{first: {Pages: 4}, late: {Late: true}}, "5 pages followed the guest, and none"},
		"one differs":                      {migration.Completed, &record.PostCopy{Pages: 5}, map[string]compare.Found{first: {Pages: 4}, late: {Pages: 5, Count: 1, Late: true}}, "1 of 5 pages differ"},
		"an agent was killed":              {migration.Completed, &record.PostCopy{Pages: 5, Refills: 1}, map[string]compare.Found{first: {Pages: 4}}, ""},
		"the guest is lost":                {migration.Failed, &record.PostCopy{Pages: 5}, map[string]compare.Found{first: {Pages: 4}}, ""},
		"nothing was compared":             {migration.Completed, nil, nil, "memory was not compared"},
		"what followed alone was compared": {migration.Completed, &record.PostCopy{Pages: 5}, map[string]compare.Found{late: {Pages: 5, Late: true}}, "memory was not compared"},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{dir: t.TempDir(), comparing: true}
			if err := os.Mkdir(w.memoryDir(), 0o700); err != nil {
				t.Fatal(err)
			}
			for file, found := range c.files {
				data, err := json.Marshal(found)
				if err := errors.Join(err, os.WriteFile(filepath.Join(w.memoryDir(), file), data, 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			err := w.compared(&record.Report{ID: "m-1", Outcome: c.outcome, PostCopy: c.postcopy})
			if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestComparesAsAsked: all is checked where that is asked for, what guests wrote where that alone is, and nothing
// elsewhere.
func TestComparesAsAsked(t *testing.T) {
	for asked, want := range map[string][2]bool{"": {}, ComparePatterns: {false, true}, "1": {true, true}} {
		t.Setenv(CompareVariable, asked)
		w := &world{dir: t.TempDir()}
		env, err := w.compares()
		if err != nil || (len(env) > 0) != want[0] || w.comparing != want[0] || w.verifying != want[1] {
			t.Errorf("%q: agents are told %q, %v; hashes %v, patterns %v", asked, env, err, w.comparing, w.verifying)
		}
	}
}

// memory is that of the one QEMU on a host, and what its pages hold.
func (p *trial) memory(host string) (*qemu.Memory, qemu.Sums) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), 20*time.Second)
	defer cancel()
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

// damage changes pages of the waiting QEMU that are what they are at the source: some of
// them will not be written again.
func (p *trial) damage(from, to string) {
	p.Helper()
	_, before := p.memory(from)
	at, there := p.memory(to)
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
