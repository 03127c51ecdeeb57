package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/agent/hook"
	"godwit/internal/need"
	"godwit/lab/scenario"
	"godwit/lab/wan"
	"godwit/migration"
)

const hookWorld = `
name: hooks
sites:
  - {name: montreal, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: public, rate: 200mbit, delay: 2ms}]}
  - {name: sanjose, guest_net: {v4: 10.2.1.0/24}, uplinks: [{name: public, rate: 200mbit, delay: 2ms}]}
clients:
  - {name: phone, at: montreal}
guests:
  - {name: web, site: montreal, memory: 192MiB, disk: 48MiB, run: ["dirty size=30MiB hot=20% rate=1MiB/s", "disk write=32MiB"]}
`

// hookDir is where a host's agent looks for executables.
func (p *trial) hookDir(host string) string { return filepath.Join(p.w.agents[host].dir, "hooks.d") }

// script makes an executable hook of a host; the result takes it away again.
func (p *trial) script(host string, event migration.EventName, name, body string) (remove func()) {
	p.Helper()
	dir := filepath.Join(p.hookDir(host), string(event)+".d")
	p.must(os.MkdirAll(dir, 0o755))
	path := filepath.Join(dir, name)
	p.must(os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o755))
	return func() { p.must(os.Remove(path)) }
}

// hearsNext has hooks of all hosts keep what they are told of an event; the result looks whether that has the guest's
// next address.
func (p *trial) hearsNext(event migration.EventName) (told func(next netip.Addr)) {
	p.Helper()
	kept := func(host string) string { return filepath.Join(p.hookDir(host), "told") }
	for host := range p.w.agents {
		p.script(host, event, "10-told", "cat >>"+kept(host))
	}
	return func(next netip.Addr) {
		p.Helper()
		for host := range p.w.agents {
			want, said := fmt.Sprintf(`"next":["%s"]`, next), []byte(nil)
			for limit := need.Patient(10 * time.Second); !strings.Contains(string(said), want); time.Sleep(50 * time.Millisecond) {
				if limit.Over() {
					p.Errorf("hooks of %s on %s are told %q, want %s", event, host, said, want)
					break
				}
				said, _ = os.ReadFile(kept(host))
			}
		}
	}
}

// TestHooks: hooks refuse, hang, are called off, and hold a running guest; and each host
// tells the events that the table says.
func TestHooks(t *testing.T) {
	exactly(t)
	p := newTrial(t, hookWorld, func(_ string, c *config.Config) {
		c.Hooks.Files = []hook.File{{Name: "10-hangs", Timeout: 500 * time.Millisecond}}
	})
	defer func() { t.Log("what was said:\n" + strings.Join(p.lines.lines, "\n")) }()
	p.ticks("phone", "web")
	time.Sleep(200 * time.Millisecond)
	p.gap()
	before := p.inventory()

	remove := p.script("montreal", migration.PreMigrationStart, "10-full", "echo the rack is full >&2; exit 1")
	outcome, err := p.outcome(migration.Request{Guest: "web", To: "sanjose"})
	p.said("a hook that refuses the start", err, migration.CodeHook, "hook 10-full", "PRE_MIGRATION_START", "the rack is full")
	p.is("a hook that refuses the start", outcome, migration.Refused)
	p.untouched("a hook that refuses the start", "web", before, time.Second)
	remove()

	calls := p.subscriber()
	outcome, err = p.outcome(migration.Request{Guest: "web", To: "sanjose"})
	p.said("a subscriber that refuses the start", err, migration.CodeHook, "hook test", "PRE_MIGRATION_START", "no room for web in 10.2.1.10")
	p.is("a subscriber that refuses the start", outcome, migration.Refused)

	remove = p.script("montreal", migration.PreSourceSuspend, "10-hangs", "echo asking the router; sleep 60")
	outcome, err = p.outcome(migration.Request{Guest: "web", To: "sanjose"})
	p.said("a hook that hangs", err, migration.CodeTimeout, "hook 10-hangs", "limit hook_blocking of 500ms passed", "asking the router")
	p.is("a hook that hangs", outcome, migration.Aborted)
	p.untouched("a hook that hangs", "web", before, 5*time.Second)
	outcome, err = p.outcome(migration.Request{Guest: "web", To: "sanjose", Transfer: "qemu-tcp", InsecureTransfer: true})
	p.said("a hold that is not to be trusted", err, migration.CodeHook, "insecure_transfer", "10-hangs")
	p.is("a hold that is not to be trusted", outcome, migration.Refused)
	remove()
	p.holds()
	if n := calls(); n != 5 { // refused; hangs, insecure: none; start, suspend, resume
		t.Errorf("the subscriber was called %d times", n)
	}
	p.ticksWhole()
}

// holds moves the guest with a hook that takes 1.5 s, the example, and one that writes
// down every event at both hosts.
func (p *trial) holds() {
	example, err := filepath.Abs("../examples/hooks/follow-guest")
	p.must(err)
	data, err := os.ReadFile(example)
	p.must(err)
	routes := filepath.Join(p.w.dir, "routes")
	for host := range p.w.agents {
		for _, m := range migration.Moments {
			p.script(host, m.Name, "99-log", "echo $GODWIT_ROLE $GODWIT_EVENT >>"+filepath.Join(p.hookDir(host), "log"))
		}
		p.must(os.WriteFile(filepath.Join(p.hookDir(host), "follow-guest"), data, 0o755))
		p.must(os.WriteFile(filepath.Join(p.hookDir(host), "follow-guest.conf"), []byte("table="+routes+"-"+host+"\n"), 0o644))
		for _, e := range []migration.EventName{migration.PreSourceSuspend, migration.HandoverDone, migration.MigrationDone, migration.MigrationAborted} {
			p.must(os.Symlink("../follow-guest", filepath.Join(p.hookDir(host), string(e)+".d", "50-follow-guest")))
		}
	}
	p.script("montreal", migration.PreSourceSuspend, "20-slow", "sleep 1.5")
	id := p.began(migration.Request{Guest: "web", To: "sanjose"})
	p.reaches(id, string(migration.PreSourceSuspend))
	p.gap()
	time.Sleep(1300 * time.Millisecond)
	g, err := p.guest("montreal", "web")
	if gap := p.gap(); err != nil || g.Status != "running" || gap > time.Second {
		p.Errorf("while a hook holds it: %+v, %v, its client waited for %v", g, err, gap)
	}
	rep := p.ends(id, 40*time.Second)
	p.is("a slow hook", rep.Outcome, migration.Completed)
	if rep.Problem != nil {
		p.Fatal(rep.Problem)
	}
	p.w.moved("web", "sanjose")
	at := p.times(id)
	if held := at[migration.SourceSuspend] - at[migration.PreSourceSuspend]; held < 1500*time.Millisecond {
		p.Errorf("the guest was paused %v after PRE_SOURCE_SUSPEND, whose hook takes 1.5s", held)
	}
	if pause := time.Duration(rep.Resumed - rep.Paused); pause > 1500*time.Millisecond {
		p.Errorf("paused for %v: what was written while the hook ran did not count", pause)
	}
	p.Logf("held for %v, then paused for %v; notes: %q", at[migration.SourceSuspend]-at[migration.PreSourceSuspend], time.Duration(rep.Resumed-rep.Paused), rep.Notes)
	p.counted(rep)
	p.told()
	said, _ := os.ReadFile(routes + "-montreal")
	want := fmt.Sprintf("announce %s for web\nwithdraw %s of web\n", rep.Next[0].Prefix.Addr(), rep.Old[0].Prefix.Addr())
	if string(said) != want {
		p.Errorf("the example wrote %q, want %q", said, want)
	}
}

// times are when a migration's events were, by the source's clock.
func (p *trial) times(id string) map[migration.EventName]time.Duration {
	p.Helper()
	part, err := p.w.agents["montreal"].client.Events(p.Context(), id, 0)
	p.must(err)
	out := map[migration.EventName]time.Duration{}
	for _, e := range part.Events {
		if e.Kind == "event" {
			if _, twice := out[e.Name]; twice {
				p.Errorf("%s is in the story twice", e.Name)
			}
			out[e.Name] = time.Duration(e.At)
		}
	}
	return out
}

// told compares what the hooks of both hosts heard of one whole migration with the table.
func (p *trial) told() {
	p.Helper()
	p.must(p.w.agents["sanjose"].client.EndDetours(p.Context()))
	for host, role := range map[string]string{"montreal": "source", "sanjose": "destination"} {
		var want []string
		for _, m := range migration.Moments {
			if m.Name != migration.MigrationAborted && m.Name != migration.LeaseEnded && (m.Where == "both" || role == "source") {
				want = append(want, role+" "+string(m.Name))
			}
		}
		var got []string
		for until := time.Now().Add(5 * time.Second); time.Now().Before(until) && len(got) < len(want); time.Sleep(50 * time.Millisecond) {
			data, _ := os.ReadFile(filepath.Join(p.hookDir(host), "log"))
			got = slices.DeleteFunc(strings.Split(strings.TrimSpace(string(data)), "\n"), func(l string) bool { return strings.Contains(l, string(migration.LeaseEnded)) })
		}
		if !slices.Equal(got, want) {
			p.Errorf("hooks of %s heard %q, want %q", host, got, want)
		}
	}
}

// abortLimit is what an abort may take until its outcome is known.
const abortLimit = 2 * time.Second

// TestAbortInEachPhase calls a migration off in every phase before the switch, with a
// destination that answers and with one that does not.
func TestAbortInEachPhase(t *testing.T) {
	exactly(t)
	p := newTrial(t, hookWorld, func(_ string, c *config.Config) {
		c.Hooks.Files = []hook.File{{Name: "10-hold", Timeout: 30 * time.Second}}
	})
	defer func() { t.Log("what was said:\n" + strings.Join(p.lines.lines, "\n")) }()
	p.ticks("phone", "web")
	time.Sleep(200 * time.Millisecond)
	p.gap()
	before := p.inventory()
	hold := p.holder()
	slow := migration.Request{Guest: "web", To: "sanjose", Bandwidth: 24_000_000}
	seeded := migration.Request{Guest: "web", To: "sanjose", Bandwidth: 80_000_000} // its disk was, in some seconds
	for _, c := range []struct {
		name, at string
		plus     time.Duration
		cut      time.Duration // before the abort; 0: no cut
		req      migration.Request
	}{
		{"check", string(migration.Check), 0, 0, slow},
		{"check, no answer", string(migration.Check), 300 * time.Millisecond, time.Millisecond, slow},
		{"check, while a hook is asked", string(migration.PreMigrationStart), 200 * time.Millisecond, 0, slow},
		{"prepare", string(migration.Prepare), 50 * time.Millisecond, 0, slow},
		{"prepare, no answer", string(migration.Prepare), 300 * time.Millisecond, 300 * time.Millisecond, slow},
		{"seed", string(migration.Seed), 500 * time.Millisecond, 0, slow},
		{"seed, no answer", string(migration.Seed), 800 * time.Millisecond, 500 * time.Millisecond, slow},
		{"copy", string(migration.Copy), 700 * time.Millisecond, 0, seeded},
		{"copy, no answer", string(migration.Copy), 1200 * time.Millisecond, 500 * time.Millisecond, seeded},
		{"while a hook holds the guest", string(migration.PreSourceSuspend), 500 * time.Millisecond, 0, migration.Request{Guest: "web", To: "sanjose"}},
	} {
		hold(c.at)
		p.abortAt(c.name, c.at, c.plus, c.cut, c.req)
		p.untouched(c.name, "web", before, 25*time.Second)
	}
	hold("")
	id := p.began(migration.Request{Guest: "web", To: "sanjose"})
	p.reaches(id, string(migration.TargetResume))
	p.said("after the switch", p.w.agents["montreal"].client.Abort(p.Context(), id), migration.CodeBusy, "handed over to sanjose")
	p.is("after the switch", p.ends(id, 25*time.Second).Outcome, migration.Completed)
	p.w.moved("web", "sanjose")
	p.ticksWhole()
}

// abortAt calls a migration off plus after an event or phase, and the uplinks of the
// destination cut for as long before.
func (p *trial) abortAt(name, at string, plus, cut time.Duration, req migration.Request) {
	p.Helper()
	setLink := func(to string) {
		p.must(p.w.topo.SetLink("sanjose", scenario.AllUplinks, func(l *wan.Link) { l.Cut = to }))
	}
	if cut > 0 && at == string(migration.Check) {
		setLink(wan.CutBoth)
	}
	id := p.began(req)
	p.reaches(id, at)
	if cut > 0 {
		time.Sleep(plus - cut)
		setLink(wan.CutBoth)
		plus = cut
	}
	time.Sleep(plus)
	asked := time.Now()
	p.must(p.w.agents["montreal"].client.Abort(p.Context(), id))
	answered := time.Since(asked)
	rep := p.ends(id, 10*time.Second)
	took := time.Duration(rep.Ended - asked.UnixNano())
	p.lines.add("abort in %s: answered after %v, outcome %s after %v", name, answered.Round(time.Millisecond), rep.Outcome, took.Round(time.Millisecond))
	if took > abortLimit {
		p.Errorf("%s: the outcome came %v after the abort, want %v", name, took, abortLimit)
	}
	p.said(name, rep.Problem, migration.CodeAsked, "aborted on request")
	p.is(name, rep.Outcome, migration.Aborted)    // in the check too: nobody refused it
	if at == string(migration.Copy) && cut == 0 { // where the destination sees its stream break first
		p.said(name+", as the destination has it", p.endsOn("sanjose", id, 10*time.Second).Problem, migration.CodeAsked, "aborted on request")
	}
	if g, err := p.guest("montreal", "web"); err != nil || g.Status != "running" {
		p.Errorf("%s: guest %+v, %v", name, g, err)
	}
	if cut > 0 {
		setLink("")
	}
}

// holder makes executables of montreal wait at one event at a time, for as long as it is held.
func (p *trial) holder() (hold func(event string)) {
	p.Helper()
	mark := filepath.Join(p.w.dir, "held")
	for _, e := range []migration.EventName{migration.PreMigrationStart, migration.PreSourceSuspend} {
		p.script("montreal", e, "10-hold", `while [ "$(cat `+mark+`)" = "$GODWIT_EVENT" ]; do sleep 0.05; done`)
	}
	return func(event string) { p.must(os.WriteFile(mark, []byte(event), 0o600)) }
}

// subscriber is a hook of montreal over its API, which refuses the first call.
func (p *trial) subscriber() (calls func() int) {
	p.Helper()
	ctx, cancel := context.WithCancel(p.Context())
	ended := make(chan error, 1)
	var count atomic.Int32
	sub := hook.Subscription{Name: "test", Events: []migration.EventName{migration.PreMigrationStart, migration.PreSourceSuspend, migration.TargetResume}}
	go func() {
		ended <- p.w.agents["montreal"].client.Hook(ctx, sub, func(_ context.Context, c hook.Call) error {
			if count.Add(1) == 1 {
				return fmt.Errorf("no room for %s in %s", c.Plan.Guest, c.Next[0])
			}
			return nil
		})
	}()
	p.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			p.Errorf("subscriber: %v", err)
		}
	})
	time.Sleep(300 * time.Millisecond) // until it stands
	return func() int { return int(count.Load()) }
}
